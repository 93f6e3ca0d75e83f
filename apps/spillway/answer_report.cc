#include "answer_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "text.h"

namespace spillway::cli {
namespace {

Json StatsJson(const RunStats& stats) { return Json::parse(stats.ToJson(), nullptr, false); }

std::string ProfileText(const GraphProfile& graph) {
  std::string text = fmt::format("profile       {}, shard {}: {} calls, {:.3f} ms a call",
                                 graph.graph, graph.shard, graph.calls,
                                 static_cast<double>(graph.total_us) / 1e3 /
                                     static_cast<double>(std::max<uint64_t>(graph.calls, 1)));
  if (graph.cycles > 0) text += fmt::format(", {} cycles in all", graph.cycles);
  text += '\n';
  for (const auto& [name, cycles] : graph.operations) {
    text += fmt::format("              {:>12}  {}\n", cycles, name);
  }
  return text;
}

}  // namespace

Json AnswerJson(const Answer& answer) {
  return {{"prompt_tokens", answer.prompt_tokens},
          {"tokens", answer.tokens},
          {"text", answer.text},
          {"stop_reason", answer.stop_reason},
          {"stats", StatsJson(answer.stats)}};
}

std::string StatsFileText(const std::vector<Answer>& answers) {
  Json list = Json::array();
  for (const Answer& answer : answers) {
    Json stats = {{"prompt_tokens", answer.prompt_tokens.size()},
                  {"answer_tokens", answer.tokens.size()},
                  {"stop_reason", answer.stop_reason}};
    stats.update(StatsJson(answer.stats));
    list.push_back(std::move(stats));
  }
  return JsonText({{"answers", std::move(list)}});
}

std::string StatsText(const Answer& answer) {
  const RunStats& s = answer.stats;
  std::string text = fmt::format("executor      {}\n", s.executor);
  text += fmt::format("load          {:.3f} s\n", s.load_s);
  text += fmt::format("first token   after {:.3f} s\n", s.time_to_first_token_s);
  text += fmt::format("prompt        {} tokens ({} still cached) in {:.3f} s, {:.1f} tokens/s\n",
                      answer.prompt_tokens.size(), s.reused_tokens, s.prefill_s,
                      s.prefill_tokens_per_s);
  text += fmt::format("answer        {} tokens; {} steps in {:.3f} s, {:.1f} tokens/s\n",
                      answer.tokens.size(), s.decode_steps, s.decode_s, s.decode_tokens_per_s);
  if (s.decode_tokens > s.decode_steps) {
    text += fmt::format("lookahead     {:.2f} tokens a step\n", s.tokens_per_step);
  }
  if (s.evictions > 0) {
    text += fmt::format("evicted       {} tokens in {} goes\n", s.evicted_tokens, s.evictions);
  }
  text += fmt::format("context       {} of {} tokens, KV cache {}\n", s.context_used, s.context_len,
                      BytesText(s.kv_cache_bytes));
  text += fmt::format("weights       {} a step, {}/s\n", BytesText(s.weight_bytes),
                      BytesText(static_cast<uint64_t>(s.weight_bytes_per_s)));
  text += fmt::format("peak memory   {}\n", BytesText(s.peak_rss_bytes));
  for (const GraphProfile& graph : s.graphs) text += ProfileText(graph);
  return text + fmt::format("stopped       {}", answer.stop_reason);
}

std::string ShortStats(const Answer& answer) {
  return fmt::format("[{} tokens, {:.1f} tokens/s, {}]", answer.tokens.size(),
                     answer.stats.decode_tokens_per_s, answer.stop_reason);
}

}  // namespace spillway::cli
