#include "bench_report.h"

#include <fmt/format.h>

#include <optional>

#include "text.h"

namespace spillway::cli {
namespace {

Json SpreadJson(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

Json FigureJson(const SpeedFigure& figure, const ThreadSpeed& speed) {
  const SpeedTest& test = figure.test;
  Json json = {{"test", test.name()},
               {"prompt_tokens", test.prompt},
               {"decode_tokens", test.decode},
               {"depth", test.depth},
               {"tokens_per_s", SpreadJson(figure.tokens_per_s)},
               {"ms_per_token", figure.ms_per_token}};
  if (test.prompt > 0) {
    json["multiply_adds_per_s"] = figure.multiply_adds_per_s;
  } else {
    json["weight_bytes_per_s"] = figure.weight_bytes_per_s;
    if (speed.memory_bandwidth > 0) {
      json["memory_bandwidth_share"] = figure.weight_bytes_per_s / speed.memory_bandwidth;
    }
    if (speed.weights_bandwidth > 0) {
      json["weights_bandwidth_share"] = figure.weight_bytes_per_s / speed.weights_bandwidth;
    }
  }
  if (figure.peer_tokens_per_s.has_value()) {
    json["peer_tokens_per_s"] = SpreadJson(*figure.peer_tokens_per_s);
    json["ratio"] = SpreadJson(*figure.ratio);
  }
  return json;
}

Json ThreadJson(const ThreadSpeed& speed) {
  Json json = {{"threads", speed.threads},
               {"executor", speed.executor},
               {"peak_rss_bytes", speed.peak_rss_bytes},
               {"memory_bandwidth", speed.memory_bandwidth},
               {"weights_bandwidth", speed.weights_bandwidth},
               {"tests", Json::array()}};
  for (const SpeedFigure& figure : speed.figures) {
    json["tests"].push_back(FigureJson(figure, speed));
  }
  return json;
}

std::string Milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }
std::string Rate(double tokens_per_s) { return fmt::format("{:.1f}", tokens_per_s); }
std::string Ratio(double ratio) { return fmt::format("{:.2f}", ratio); }

std::string Percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : "";
}

std::string StartText(const StartFigures& start) {
  return fmt::format(
      "new process, {} thread{}: ready after {}, the first token of a prompt of 10 after {}\n"
      "  more, {} in all ({} to {}); {} of memory\n",
      start.threads, start.threads == 1 ? "" : "s", Milliseconds(start.load.median),
      Milliseconds(start.first_token.median), Milliseconds(start.both.median),
      Milliseconds(start.both.min), Milliseconds(start.both.max), BytesText(start.peak_rss_bytes));
}

std::string TableText(const ThreadSpeed& speed, bool has_peer) {
  std::vector<std::string> header = {"test", "tokens/s", "min", "max", "ms/token", "Gmadd/s"};
  if (speed.memory_bandwidth > 0) header.insert(header.end(), {"of memory", "of weights"});
  if (has_peer) header.insert(header.end(), {"llama.cpp", "ratio", "min", "max"});
  TextTable table(header);
  for (const SpeedFigure& figure : speed.figures) {
    const bool prompt = figure.test.prompt > 0;
    std::vector<std::string> row = {
        figure.test.name(),
        Rate(figure.tokens_per_s.median),
        Rate(figure.tokens_per_s.min),
        Rate(figure.tokens_per_s.max),
        fmt::format("{:.3f}", figure.ms_per_token),
        prompt ? fmt::format("{:.1f}", figure.multiply_adds_per_s / 1e9) : ""};
    if (speed.memory_bandwidth > 0) {
      row.push_back(prompt ? "" : Percent(figure.weight_bytes_per_s, speed.memory_bandwidth));
      row.push_back(prompt ? "" : Percent(figure.weight_bytes_per_s, speed.weights_bandwidth));
    }
    if (figure.ratio.has_value()) {
      row.insert(row.end(), {Rate(figure.peer_tokens_per_s->median), Ratio(figure.ratio->median),
                             Ratio(figure.ratio->min), Ratio(figure.ratio->max)});
    }
    table.AddRow(row);
  }
  return table.ToString(2);
}

std::string ThreadText(const ThreadSpeed& speed, const SpeedReport& report) {
  std::string text =
      fmt::format("\n{}; {} of memory at most\n", speed.executor, BytesText(speed.peak_rss_bytes));
  if (speed.memory_bandwidth > 0) {
    text += fmt::format("  reads {}/s of memory ({}), {}/s of a buffer like the weights\n",
                        BytesText(static_cast<uint64_t>(speed.memory_bandwidth)),
                        BytesText(report.bandwidth_buffer_bytes),
                        BytesText(static_cast<uint64_t>(speed.weights_bandwidth)));
  }
  return text + TableText(speed, !report.peer.empty());
}

}  // namespace

Json BenchJson(const BenchReport& report) {
  const SpeedReport& speed = report.speed;
  Json json = {{"kind", "bench"},
               {"package", report.package},
               {"recipe", report.recipe},
               {"context_len", report.context_len},
               {"prefill_ar_len", report.prefill_ar},
               {"repetitions", report.repetitions},
               {"weight_bytes", speed.weight_bytes},
               {"kv_cache_bytes", speed.kv_cache_bytes},
               {"bandwidth_buffer_bytes", speed.bandwidth_buffer_bytes},
               {"peer", speed.peer.empty() ? Json(nullptr) : Json(speed.peer)},
               {"remarks", speed.remarks},
               {"starts", Json::array()},
               {"threads", Json::array()}};
  for (const StartFigures& start : report.starts) {
    json["starts"].push_back({{"threads", start.threads},
                              {"load_s", SpreadJson(start.load)},
                              {"first_token_s", SpreadJson(start.first_token)},
                              {"load_to_first_token_s", SpreadJson(start.both)},
                              {"peak_rss_bytes", start.peak_rss_bytes}});
  }
  for (const ThreadSpeed& thread : speed.threads) json["threads"].push_back(ThreadJson(thread));
  return json;
}

std::string BenchText(const BenchReport& report) {
  std::string text = fmt::format(
      "{}: {}, context {}, {} tokens of a prompt in a call; medians of {} rounds\n"
      "weights read for a token {}, KV cache {}\n",
      report.package, report.recipe, report.context_len, report.prefill_ar, report.repetitions,
      BytesText(report.speed.weight_bytes), BytesText(report.speed.kv_cache_bytes));
  if (!report.speed.peer.empty()) text += "in turns with " + report.speed.peer + "\n";
  for (const StartFigures& start : report.starts) text += StartText(start);
  for (const ThreadSpeed& thread : report.speed.threads) text += ThreadText(thread, report.speed);
  for (const std::string& remark : report.speed.remarks) text += "\n" + remark;
  return report.speed.remarks.empty() ? text : text + "\n";
}

}  // namespace spillway::cli
