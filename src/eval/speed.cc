#include "eval/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/memory.h"
#include "base/process_memory.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "eval/llama_cpp.h"
#include "eval/read_bandwidth.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/step_graphs.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kLeastBandwidthBuffer = uint64_t{256} << 20;

// Multiply-adds of the weight products of a prompt: of every token, and of the output head,
// which only the last one takes.
struct LinearWork {
  uint64_t per_token = 0, head = 0;
  double Of(uint32_t tokens) const {
    return static_cast<double>(per_token) * tokens + static_cast<double>(head);
  }
};

const Op* Producer(const Graph& graph, TensorId id) {
  for (const Op& op : graph.ops()) {
    if (op.outputs[0] == id) return &op;
  }
  return nullptr;
}

// The product that makes the logits, maybe with changes of shape behind it.
const Op* FindHead(const StepGraph& graph) {
  const Op* op = Producer(*graph.graph, graph.graph->outputs()[StepGraph::kMainOutput]);
  while (op != nullptr && op->type == OpType::kReshape) op = Producer(*graph.graph, op->inputs[0]);
  return op;
}

LinearWork CountLinearWork(const StepGraphs& graphs) {
  const std::vector<StepGraph>& shards = graphs.prefill.empty() ? graphs.decode : graphs.prefill;
  LinearWork work;
  for (const StepGraph& shard : shards) {
    const Op* head = &shard == &shards.back() ? FindHead(shard) : nullptr;
    for (const Op& op : shard.graph->ops()) {
      if (op.type != OpType::kLinear) continue;
      const uint64_t products = NumElements(shard.graph->tensor(op.inputs[1]).shape);
      (&op == head ? work.head : work.per_token) += products;
    }
  }
  return work;
}

std::string ThreadsText(size_t threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

// Runs tests on one executor.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> Open(std::shared_ptr<const Package> package,
                                              size_t threads) {
    std::unique_ptr<Runner> runner(new Runner());
    HostModelOptions options;
    options.threads = threads;
    SPILLWAY_ASSIGN_OR_RETURN(runner->executor_,
                              HostModelExecutor::Open(std::move(package), options));
    runner->generator_.emplace(runner->executor_.get());
    runner->MakeTokens();
    return runner;
  }

  const HostModelExecutor& executor() const { return *executor_; }

  // Seconds.
  Result<double> Run(const SpeedTest& test) {
    SPILLWAY_RETURN_IF_ERROR(GoTo(test.depth));
    const Clock::time_point start = Clock::now();
    if (test.prompt > 0) {
      SPILLWAY_RETURN_IF_ERROR(generator_->Feed(Tokens(test.prompt)));
    }
    for (uint32_t i = 0; i < test.decode; ++i) {
      SPILLWAY_RETURN_IF_ERROR(generator_->Feed(Tokens(test.decode).subspan(i, 1)));
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  Runner() = default;

  void MakeTokens() {
    SplitMix64 random(1);
    const uint32_t vocab = generator_->token_count();
    for (uint32_t i = 0; i < generator_->context_len(); ++i) {
      tokens_.push_back(static_cast<uint32_t>(random.Next() % vocab));
    }
  }

  std::span<const uint32_t> Tokens(uint32_t count) const { return {tokens_.data(), count}; }

  // Leaves `depth` tokens in the context, or only the prefix.
  Status GoTo(uint32_t depth) {
    if (generator_->n_past() > depth) generator_->Truncate(depth);
    if (generator_->n_past() >= depth) return OkStatus();
    return generator_->Feed(Tokens(depth - generator_->n_past()));
  }

  std::unique_ptr<HostModelExecutor> executor_;
  std::optional<Generator> generator_;
  std::vector<uint32_t> tokens_;
};

// What the package has room for.
struct Room {
  uint32_t context_len = 0, prefix = 0, prefill_ar = 0, decode_ar = 0;

  // Why the test cannot run; empty when it can.
  std::string WhyNot(const SpeedTest& test) const {
    if (test.depth > 0 && test.depth < prefix) {
      return fmt::format("the prefix alone has {} tokens", prefix);
    }
    const uint64_t needed = uint64_t{std::max(prefix, test.depth)} + test.tokens();
    if (needed <= context_len) return "";
    return fmt::format("it needs a context of {}, the package has {}", needed, context_len);
  }

  // Tokens of a prompt that run one by one, as there is no room for a padded call.
  uint32_t SingleTokens(uint32_t prompt) const {
    if (prefill_ar == 0 || decode_ar != 1) return 0;
    const uint32_t end = prefix + prompt;
    uint32_t at = prefix;
    while (at < end && at + prefill_ar <= context_len) at += prefill_ar;
    return at < end ? end - at : 0;
  }
};

// Tests that run together in one round: the peer takes them in one go.
using Group = std::vector<SpeedTest>;

std::vector<Group> PlanGroups(const SpeedOptions& options, const Room& room,
                              std::vector<std::string>& remarks) {
  std::vector<Group> groups(1);
  const auto add = [&](Group& group, const SpeedTest& test) {
    const std::string reason = room.WhyNot(test);
    if (!reason.empty()) {
      remarks.push_back(fmt::format("{} is left out: {}", test.name(), reason));
      return;
    }
    group.push_back(test);
    const uint32_t single = room.SingleTokens(test.prompt);
    if (single > 0) {
      remarks.push_back(
          fmt::format("{}: its last {} tokens run one by one, for a call of {} has no room in a "
                      "context of {}",
                      test.name(), single, room.prefill_ar, room.context_len));
    }
  };
  for (const uint32_t prompt : options.prompts) add(groups[0], {.prompt = prompt});
  if (options.decode > 0) add(groups[0], {.decode = options.decode});
  for (const uint32_t depth : options.depths) {
    groups.emplace_back();
    add(groups.back(), {.decode = options.depth_tokens, .depth = depth});
  }
  std::erase_if(groups, [](const Group& group) { return group.empty(); });
  return groups;
}

class Measurement {
 public:
  Measurement(std::shared_ptr<const Package> package, const SpeedOptions& options,
              Progress* progress)
      : package_(std::move(package)), options_(options), progress_(progress) {}

  Result<SpeedReport> Run() {
    SPILLWAY_RETURN_IF_ERROR(Plan());
    for (const uint32_t threads : options_.threads) {
      SPILLWAY_RETURN_IF_ERROR(RunThreads(threads == 0 ? AvailableProcessors() : threads));
    }
    // Last, for its buffer would be part of the tests' memory.
    SPILLWAY_RETURN_IF_ERROR(MeasureBandwidth());
    return std::move(report_);
  }

 private:
  Status Plan() {
    SPILLWAY_ASSIGN_OR_RETURN(const StepGraphs graphs, ReadStepGraphs(*package_));
    const KvShape& kv = graphs.io.kv;
    Room room;
    room.context_len = kv.context_len;
    room.prefix = static_cast<uint32_t>(graphs.io.prefix.tokens.size());
    room.prefill_ar = graphs.prefill.empty() ? 0 : graphs.prefill[0].ar_len;
    room.decode_ar = graphs.decode.empty() ? 0 : graphs.decode[0].ar_len;
    work_ = CountLinearWork(graphs);
    report_.weight_bytes = graphs.weight_bytes;
    report_.kv_cache_bytes = 2 * kv.layers * kv.row_bytes();
    if (options_.peer != nullptr) report_.peer = options_.peer->Describe();
    groups_ = PlanGroups(options_, room, report_.remarks);
    if (groups_.empty()) {
      return InvalidArgumentError(fmt::format(
          "no test fits a context of {} tokens; ask for shorter ones, or compile with a larger "
          "--context-len",
          room.context_len));
    }
    for (const Group& group : groups_) tests_ += group.size();
    return CheckBandwidthBuffer(options_.bandwidth_bytes.value_or(0));
  }

  Status RunThreads(size_t threads) {
    ResetPeakRss();
    SPILLWAY_ASSIGN_OR_RETURN(const auto runner, Runner::Open(package_, threads));
    ThreadSpeed speed;
    speed.threads = threads;
    speed.executor = runner->executor().Describe();
    for (const Group& group : groups_) {
      SPILLWAY_RETURN_IF_ERROR(RunGroup(*runner, group, speed));
    }
    speed.peak_rss_bytes = PeakRssBytes();
    report_.threads.push_back(std::move(speed));
    return OkStatus();
  }

  Status RunGroup(Runner& runner, const Group& group, ThreadSpeed& speed) {
    std::vector<std::vector<double>> ours(group.size()), theirs(group.size());
    for (uint32_t round = 0; round <= options_.repetitions; ++round) {
      for (size_t i = 0; i < group.size(); ++i) {
        Tell(group, speed.threads);
        SPILLWAY_ASSIGN_OR_RETURN(const double seconds, runner.Run(group[i]));
        if (round > 0) ours[i].push_back(group[i].tokens() / std::max(seconds, 1e-9));
      }
      if (options_.peer == nullptr || round == 0) continue;
      SPILLWAY_ASSIGN_OR_RETURN(const std::vector<double> rates,
                                options_.peer->Run(group, speed.threads));
      for (size_t i = 0; i < group.size(); ++i) theirs[i].push_back(rates[i]);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      speed.figures.push_back(MakeFigure(group[i], ours[i], theirs[i]));
    }
    return OkStatus();
  }

  SpeedFigure MakeFigure(const SpeedTest& test, const std::vector<double>& ours,
                         const std::vector<double>& theirs) const {
    SpeedFigure figure;
    figure.test = test;
    figure.tokens_per_s = Spread::Of(ours);
    const double rate = figure.tokens_per_s.median;
    figure.ms_per_token = 1e3 / rate;
    if (test.prompt > 0) {
      figure.multiply_adds_per_s = work_.Of(test.prompt) * rate / test.prompt;
    } else {
      figure.weight_bytes_per_s = static_cast<double>(report_.weight_bytes) * rate;
    }
    if (theirs.empty()) return figure;
    figure.peer_tokens_per_s = Spread::Of(theirs);
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
    figure.ratio = Spread::Of(ratios);
    return figure;
  }

  Status MeasureBandwidth() {
    const uint64_t bytes = options_.bandwidth_bytes.value_or(
        std::max(2 * LastLevelCacheBytes(), kLeastBandwidthBuffer));
    if (bytes == 0) return OkStatus();
    report_.bandwidth_buffer_bytes = bytes;
    for (ThreadSpeed& speed : report_.threads) {
      ReportProgress(progress_, "read bandwidth, " + ThreadsText(speed.threads), -1);
      SPILLWAY_ASSIGN_OR_RETURN(speed.memory_bandwidth, MeasureReadBandwidth(bytes, speed.threads));
      if (report_.weight_bytes == 0) continue;
      SPILLWAY_ASSIGN_OR_RETURN(speed.weights_bandwidth,
                                MeasureReadBandwidth(report_.weight_bytes, speed.threads));
    }
    return OkStatus();
  }

  double Fraction() const {
    const double all =
        static_cast<double>(options_.threads.size() * tests_) * (options_.repetitions + 1);
    return static_cast<double>(done_) / all;
  }

  // One stage a group: its tests take turns.
  void Tell(const Group& group, size_t threads) {
    std::string names;
    for (const SpeedTest& test : group) names += (names.empty() ? "" : ", ") + test.name();
    ReportProgress(progress_, fmt::format("{}: {}", ThreadsText(threads), names), Fraction());
    ++done_;
  }

  std::shared_ptr<const Package> package_;
  const SpeedOptions& options_;
  Progress* progress_;
  LinearWork work_;
  std::vector<Group> groups_;
  size_t tests_ = 0, done_ = 0;
  SpeedReport report_;
};

}  // namespace

std::string SpeedTest::name() const {
  if (prompt > 0) return fmt::format("pp{}", prompt);
  return depth == 0 ? fmt::format("tg{}", decode) : fmt::format("tg{} @ d{}", decode, depth);
}

Spread Spread::Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

Result<SpeedReport> MeasureSpeed(std::shared_ptr<const Package> package,
                                 const SpeedOptions& options, Progress* progress) {
  return Measurement(std::move(package), options, progress).Run();
}

}  // namespace spillway
