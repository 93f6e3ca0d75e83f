#include "runtime/htp_model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/thread_pool.h"
#include "host/executor.h"
#include "qnn/htp/options_json.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/lookahead.h"
#include "runtime/sampler.h"
#include "tests/runtime/test_worker.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

// "Contexts" that run the package's graphs on the host. Their tensors come in another
// order than the graphs'.
class HostContexts : public ContextRunner {
 public:
  // `intermediates`: every tensor that an operation makes is an output, as in contexts
  // compiled for dumps. `evictor`: the package's is the last context.
  explicit HostContexts(const Package& package, bool intermediates = false, bool evictor = false) {
    for (uint32_t shard = 0; shard < package.manifest().shards.size(); ++shard) {
      info_.contexts.emplace_back();
      executors_.emplace_back();
      for (const char* name : {kDecodeGraphName, kPrefillGraphName}) {
        Result<std::shared_ptr<const Graph>> graph = package.FindGraph(shard, name);
        if (graph.ok()) AddGraph(intermediates ? WithAllOutputs(**graph) : *graph);
      }
    }
    if (!evictor) return;
    info_.contexts.emplace_back();
    executors_.emplace_back();
    AddGraph(package.evictor());
  }

  RunnerInfo& mutable_info() { return info_; }
  Status Execute(size_t context, size_t graph) override {
    ++executions;
    profile_ = {10, 5, 1000, {{"slow", 700}, {"fast", 100}}};
    return executors_[context][graph]->Run();
  }
  int executions = 0;

 protected:
  Status UseMemory(const IoLayout& layout) override {
    for (size_t c = 0; c < executors_.size(); ++c) {
      for (size_t g = 0; g < executors_[c].size(); ++g) {
        const std::vector<uint64_t>& in = layout.contexts[c][g].inputs;
        const std::vector<uint64_t>& out = layout.contexts[c][g].outputs;
        for (size_t i = 0; i < in.size(); ++i) {
          executors_[c][g]->BindInput(in.size() - 1 - i, memory().data() + in[i]);
        }
        for (size_t i = 0; i < out.size(); ++i) {
          executors_[c][g]->BindOutput(out.size() - 1 - i, memory().data() + out[i]);
        }
      }
    }
    return OkStatus();
  }

 private:
  static std::shared_ptr<const Graph> WithAllOutputs(Graph graph) {
    for (const Op& op : std::vector<Op>(graph.ops())) {
      if (graph.tensor(op.outputs[0]).role == TensorRole::kInternal)
        graph.MarkOutput(op.outputs[0]);
    }
    return std::make_shared<const Graph>(std::move(graph));
  }
  static ContextTensor Of(const Tensor& tensor) {
    return {tensor.name, tensor.dtype, tensor.shape};
  }
  void AddGraph(const std::shared_ptr<const Graph>& graph) {
    ContextGraph& context = info_.contexts.back().graphs.emplace_back();
    context.name = graph->name();
    for (const TensorId id : graph->inputs()) context.inputs.push_back(Of(graph->tensor(id)));
    for (const TensorId id : graph->outputs()) context.outputs.push_back(Of(graph->tensor(id)));
    std::reverse(context.inputs.begin(), context.inputs.end());
    std::reverse(context.outputs.begin(), context.outputs.end());
    executors_.back().push_back(host::Executor::Create(graph, &pool_).value());
  }

  ThreadPool pool_{1};
  std::vector<std::vector<std::unique_ptr<host::Executor>>> executors_;  // [context][graph]
};

std::shared_ptr<const Package> OpenPackage(const std::string& path) {
  Result<std::shared_ptr<const Package>> package = Package::Open(path);
  EXPECT_TRUE(package.ok()) << package.status().ToString();
  return package.ok() ? *package : nullptr;
}

// A package with context files named in its manifest, which HostContexts plays.
class HtpModelExecutorTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static uint32_t Shards() { return GetParam(); }

  void SetUp() override {
    CompileOptions compile = test::TinyCompileOptions();
    compile.num_shards = Shards();
    test::TinyModelSpec spec;
    spec.layers = 4;
    package_ = OpenPackage(test::MakeTinyPackage(folder_.path(), compile, spec));
    ASSERT_TRUE(package_);
    ASSERT_EQ(package_->manifest().shards.size(), Shards());
    for (uint32_t s = 0; s < Shards(); ++s) {
      manifest().shards[s].context_file = "context_" + std::to_string(s) + ".bin";
      manifest().shards[s].max_spill_fill_bytes = 4096;
    }
    manifest().weight_sharing = false;
    manifest().slc_allocator = false;
  }

  // The manifest of an opened package is constant to all but this test.
  PackageManifest& manifest() { return const_cast<PackageManifest&>(package_->manifest()); }

  using Change = std::function<void(RunnerInfo&)>;
  Result<std::unique_ptr<HtpModelExecutor>> Open(const Change& change = nullptr) {
    options_.open =
        [&](const ContextRunnerOptions& runner_options) -> Result<std::unique_ptr<ContextRunner>> {
      opened_ = runner_options;
      auto contexts = std::make_unique<HostContexts>(
          *package_, runner_options.htp.dump_intermediates, runner_options.evictor);
      if (change) change(contexts->mutable_info());
      contexts_ = contexts.get();
      return std::unique_ptr<ContextRunner>(std::move(contexts));
    };
    return HtpModelExecutor::Open(package_, options_);
  }

  // Options of the package, as the compiler would have written them.
  void SetPackageOptions(const HtpOptions& options) {
    manifest().htp_options_json = qnn::htp::HtpOptionsToJson(options);
  }

  test::TempFolder folder_;
  std::shared_ptr<const Package> package_;
  HtpModelOptions options_;
  ContextRunnerOptions opened_;
  HostContexts* contexts_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Shards, HtpModelExecutorTest, ::testing::Values(1, 2, 4));

TEST_P(HtpModelExecutorTest, GivesTheIntegersOfTheHostExecutor) {
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  ASSERT_EQ(opened_.context_paths.size(), Shards());
  EXPECT_EQ(opened_.context_paths[0], package_->PathOf("context_0.bin"));
  EXPECT_EQ(opened_.htp.soc, package_->manifest().soc);
  auto host = HostModelExecutor::Open(package_, {.threads = 1});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  Generator a(htp->get()), b(host->get());
  std::mt19937 random(3);
  for (const uint32_t length : {1u, 20u, 16u, 3u, 1u, 1u, 10u}) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < length; ++i) tokens.push_back(random() % 300);
    ASSERT_TRUE(a.Feed(tokens).ok());
    ASSERT_TRUE(b.Feed(tokens).ok());
    ASSERT_TRUE(std::equal(a.logits().begin(), a.logits().end(), b.logits().begin()))
        << "after " << a.n_past();
  }
  EXPECT_THAT((*htp)->Describe(), HasSubstr("context_0.bin"));
}

TEST_P(HtpModelExecutorTest, TheEvictorIsAContextOfItsOwn) {
  AddEvictorOptions add;
  add.package_path = package_->path();
  add.sink = {3, 10};
  add.htp_build = HtpBuild::kOff;
  const Result<EvictorReport> added = AddEvictor(add);
  ASSERT_TRUE(added.ok()) << added.status().ToString();
  const PackageManifest before = package_->manifest();
  package_ = OpenPackage(add.package_path);
  ASSERT_TRUE(package_);
  manifest().shards = before.shards;
  options_.evictor = true;
  options_.run.profile_level = ProfileLevel::kBasic;
  ASSERT_TRUE(Open().ok());
  EXPECT_FALSE(opened_.evictor) << "it has no context";

  manifest().evictor->context_file = "evictor.bin";
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_TRUE(opened_.evictor);
  ASSERT_EQ(opened_.context_paths.size(), Shards() + 1);
  EXPECT_EQ(opened_.context_paths.back(), package_->PathOf("evictor.bin"));
  const auto host = HostModelExecutor::Open(package_, {.threads = 1});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  Generator by_graph(htp->get()), by_code(host->get());
  for (Generator* generator : {&by_graph, &by_code}) {
    ASSERT_TRUE(generator->SetAttentionSink({3, 10}, manifest().config.rope).ok());
  }
  EXPECT_TRUE(by_graph.evicts_by_executor());
  EXPECT_FALSE(by_code.evicts_by_executor());
  std::mt19937 random(3);
  for (const uint32_t length : {50u, 1u, 20u, 1u, 1u, 40u}) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < length; ++i) tokens.push_back(random() % 300);
    ASSERT_TRUE(by_graph.Feed(tokens).ok());
    ASSERT_TRUE(by_code.Feed(tokens).ok());
    ASSERT_TRUE(
        std::equal(by_graph.logits().begin(), by_graph.logits().end(), by_code.logits().begin()))
        << "after " << by_graph.evictions() << " evictions";
  }
  EXPECT_GE(by_graph.evictions(), 4u);
  const std::vector<GraphProfile> profiles = (*htp)->TakeProfile();
  EXPECT_EQ(profiles.back().graph, kEvictorGraphName);
  EXPECT_EQ(profiles.back().calls, by_graph.evictions());

  const auto rename = [](RunnerInfo& info) { info.contexts.back().graphs[0].name = "other"; };
  EXPECT_THAT(Open(rename).status().message(), HasSubstr("attention_sink_evictor"));
}

TEST_P(HtpModelExecutorTest, ShardsShareWhatTheyCan) {
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  // Masks, positions, hidden states and both caches once, new keys, values and logits
  // of their own: a copy a shard of the mask alone would be more.
  const StepGraphs graphs = ReadStepGraphs(*package_).value();
  uint64_t expected = 0;
  const auto add = [&](uint64_t bytes) { expected += (bytes + 63) / 64 * 64; };
  const KvShape& kv = graphs.io.kv;
  for (uint32_t i = 0; i < 2 * kv.layers; ++i)
    add(kv.kv_heads * kv.head_dim * (kv.context_len - 1));
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    for (size_t i = 0; i < 3; ++i) add(graphs.of(kind)[0].input(i).Bytes());
    for (const StepGraph& step : graphs.of(kind)) {
      for (size_t i = 0; i < step.graph->outputs().size(); ++i) add(step.output(i).Bytes());
    }
  }
  EXPECT_EQ(contexts_->memory().size(), expected);
}

TEST_P(HtpModelExecutorTest, OneSpillFillBufferForAllShards) {
  const auto buffer = [&](const HtpOptions& options) {
    SetPackageOptions(options);
    EXPECT_TRUE(Open().ok());
    return opened_.shared_spill_fill_bytes;
  };
  EXPECT_EQ(buffer({}), Shards() > 1 ? 4096u : 0u);
  HtpOptions options;
  options.multi_contexts = false;
  EXPECT_EQ(buffer(options), 0u);
  options.multi_contexts = true;
  EXPECT_EQ(buffer(options), Shards() > 1 ? 4096u : 0u);
}

TEST_P(HtpModelExecutorTest, TheRunsOptionsWinOverThePackages) {
  HtpOptions compiled;
  compiled.performance = PerformanceMode::kBalanced;
  compiled.rpc_polling_us = 100;
  compiled.priority = GraphPriority::kHigh;
  compiled.log_level = VendorLogLevel::kInfo;
  SetPackageOptions(compiled);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(opened_.htp.performance, PerformanceMode::kBalanced);
  EXPECT_EQ(opened_.htp.rpc_polling_us, 100u);
  EXPECT_EQ(opened_.htp.priority, GraphPriority::kHigh);
  EXPECT_EQ(opened_.htp.log_level, VendorLogLevel::kInfo);

  options_.run.performance = PerformanceMode::kBurst;
  options_.run.rpc_polling_us = 9999;
  options_.run.rpc_control_latency_us = 50;
  options_.run.priority = GraphPriority::kLow;
  options_.run.pd_session = PdSession::kSigned;
  options_.run.profile_level = ProfileLevel::kBasic;
  options_.run.log_level = VendorLogLevel::kError;
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(opened_.htp.performance, PerformanceMode::kBurst);
  EXPECT_EQ(opened_.htp.rpc_polling_us, 9999u);
  EXPECT_EQ(opened_.htp.rpc_control_latency_us, 50u);
  EXPECT_EQ(opened_.htp.priority, GraphPriority::kLow);
  EXPECT_EQ(opened_.htp.pd_session, PdSession::kSigned);
  EXPECT_EQ(opened_.htp.profile_level, ProfileLevel::kBasic);
  EXPECT_EQ(opened_.htp.log_level, VendorLogLevel::kError);

  options_.run.rpc_polling_us = 10000;
  EXPECT_THAT(Open().status().message(), HasSubstr("rpc_polling_us is 10000"));
  manifest().htp_options_json = R"({"soc":7})";
  EXPECT_EQ(Open().status().code(), StatusCode::kCorruptData);
}

TEST_P(HtpModelExecutorTest, OnlinePrepareNeedsNoContexts) {
  for (ShardInfo& shard : manifest().shards) shard.context_file.clear();
  EXPECT_EQ(Open().status().code(), StatusCode::kUnsupported);
  options_.run.online_prepare = true;
  options_.prepare_timeout_s = 77;
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_EQ(opened_.prepare_folder, package_->path());
  EXPECT_THAT(opened_.context_paths, ::testing::IsEmpty());
  EXPECT_EQ(opened_.prepare_timeout_s, 77);
  EXPECT_THAT((*htp)->Describe(), HasSubstr("prepared online"));

  // A package that was compiled for it; what `auto` chose is what is built.
  options_.run.online_prepare = false;
  HtpOptions compiled;
  compiled.online_prepare = true;
  compiled.slc_allocator = SlcAllocator::kAuto;
  SetPackageOptions(compiled);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(opened_.prepare_folder, package_->path());
  EXPECT_EQ(opened_.htp.slc_allocator, SlcAllocator::kOff);
  manifest().slc_allocator = true;
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(opened_.htp.slc_allocator, SlcAllocator::kOn);
}

TEST_P(HtpModelExecutorTest, ProfilesAreSummedAndTaken) {
  options_.run.profile_level = ProfileLevel::kDetailed;
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*htp)->Run(StepKind::kDecode, 0).ok());
  const std::vector<GraphProfile> profiles = (*htp)->TakeProfile();
  ASSERT_EQ(profiles.size(), Shards());  // the prefill graph did not run
  for (uint32_t s = 0; s < Shards(); ++s) {
    EXPECT_EQ(profiles[s].graph, "kv_forward");
    EXPECT_EQ(profiles[s].shard, s);
    EXPECT_EQ(profiles[s].calls, 3u);
    EXPECT_EQ(profiles[s].total_us, 30u);
    EXPECT_EQ(profiles[s].accelerator_us, 15u);
    EXPECT_EQ(profiles[s].cycles, 3000u);
    EXPECT_THAT(profiles[s].operations, ::testing::ElementsAre(::testing::Pair("slow", 2100u),
                                                               ::testing::Pair("fast", 300u)));
  }
  EXPECT_THAT((*htp)->TakeProfile(), ::testing::IsEmpty());
}

// The files below `folder`, with their contents.
std::map<std::string, std::string> FilesBelow(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().string();
    files[path.substr(folder.size() + 1)] = ReadFile(path).value();
  }
  return files;
}

TEST_P(HtpModelExecutorTest, DumpsAreThoseOfTheHost) {
  options_.dump = TensorDump::Create(folder_.File("htp")).value();
  const Status refused = Open().status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("--dump-intermediates"));
  HtpOptions compiled;
  compiled.dump_intermediates = true;
  SetPackageOptions(compiled);
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  auto host = HostModelExecutor::Open(package_, {.threads = 1, .cache_in_rows = true});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  const std::unique_ptr<ModelExecutor> dumped =
      DumpTensors(std::move(host).value(), TensorDump::Create(folder_.File("host")).value());
  Generator a(htp->get()), b(dumped.get());
  for (const std::vector<uint32_t>& tokens : {std::vector<uint32_t>{3, 4, 5, 6}, {7}}) {
    ASSERT_TRUE(a.Feed(tokens).ok());
    ASSERT_TRUE(b.Feed(tokens).ok());
  }
  std::map<std::string, std::string> left = FilesBelow(folder_.File("htp"));
  std::map<std::string, std::string> right = FilesBelow(folder_.File("host"));
  for (const char* list :
       {"000000/prefill_forward/tensors.json", "000001/kv_forward/tensors.json"}) {
    ASSERT_TRUE(left.contains(list));
    // The order is each side's own.
    auto one = nlohmann::json::parse(left[list]), other = nlohmann::json::parse(right[list]);
    const auto by_name = [](const nlohmann::json& x, const nlohmann::json& y) {
      return x.at("name") < y.at("name");
    };
    std::sort(one.begin(), one.end(), by_name);
    std::sort(other.begin(), other.end(), by_name);
    EXPECT_EQ(one, other);
    EXPECT_GT(one.size(), 40u);
    left.erase(list);
    right.erase(list);
  }
  EXPECT_EQ(left, right);
  EXPECT_TRUE(left.contains("000001/kv_forward/logits.bin"));
  EXPECT_FALSE(TensorDump::Create(folder_.File("htp")).ok());  // not a second time
}

TEST_P(HtpModelExecutorTest, ContextsThatAreNotThePackages) {
  const auto error = [&](const std::function<void(ContextInfo&)>& change) {
    const Status status = Open([&](RunnerInfo& info) { change(info.contexts.back()); }).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].name = "other"; }),
              HasSubstr("kv_forward is not in the context"));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].inputs[0].name = "other"; }),
              HasSubstr("no tensor \"v_cache_3\""));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[1].outputs[0].dtype = DType::kU16; }),
              HasSubstr("prefill_forward"));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].inputs.pop_back(); }),
              HasSubstr("inputs"));
  EXPECT_THAT(error([](ContextInfo& info) {
                info.graphs[0].outputs.push_back({"more", DType::kU8, {1}});
              }),
              HasSubstr("outputs"));
  EXPECT_THAT(error([](ContextInfo& info) { info.soc_model = 57; }),
              HasSubstr("compile the package again"));
}

TEST(ChooseContextFileTest, TellsWhatIsMissingAndHowToMakeIt) {
  PackageManifest manifest;
  manifest.shards.resize(1);
  const auto choose = [&](bool simulator) { return ChooseContextFile(manifest, 0, simulator); };
  EXPECT_THAT(choose(true).status().message(), HasSubstr("without the vendor's libraries"));
  EXPECT_THAT(choose(true).status().message(), HasSubstr("--with-simulator"));
  EXPECT_THAT(choose(false).status().message(), HasSubstr("--qnn-lib-dir"));

  manifest.shards[0].context_file = "context_0.bin";
  EXPECT_EQ(choose(true).value(), "context_0.bin");
  manifest.weight_sharing = true;
  EXPECT_EQ(choose(false).value(), "context_0.bin");
  EXPECT_EQ(choose(true).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(choose(true).status().message(), HasSubstr("error 1000"));
  EXPECT_THAT(choose(true).status().message(), HasSubstr("--online-prepare"));
  EXPECT_THAT(choose(true).status().message(), HasSubstr("plain_0.bin"));
  manifest.slc_allocator = true;
  EXPECT_THAT(choose(true).status().message(), HasSubstr("1000 or crashes) and it was made"));
  manifest.weight_sharing = false;
  EXPECT_THAT(choose(true).status().message(), HasSubstr("6003"));
  manifest.shards[0].plain_file = "plain_0.bin";
  EXPECT_EQ(choose(true).value(), "plain_0.bin");
  EXPECT_EQ(choose(false).value(), "context_0.bin");
}

// The real thing: the vendor's compiler and simulator, in children.
class HtpSimulatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "only the x86-64 library has a simulator";
#endif
    if (!test::QnnLibDir()) {
      GTEST_SKIP() << "no vendor libraries in SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn";
    }
    options_.qnn_lib_dir = *test::QnnLibDir();
    compile_ = test::TinyCompileOptions();
    compile_.htp_build = HtpBuild::kOn;
    compile_.qnn_lib_dir = *test::QnnLibDir();
    compile_.use_cache = false;
  }

  void Make() {
    package_ = OpenPackage(test::MakeTinyPackage(folder_.path(), compile_));
    ASSERT_TRUE(package_);
  }

  // Prefill and a few steps of both executors.
  void ExpectTheHostsTokens(HtpModelExecutor& htp) {
    auto host = HostModelExecutor::Open(package_, {.threads = 1});
    ASSERT_TRUE(host.ok()) << host.status().ToString();
    Generator a(&htp), b(host->get());
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < 20; ++i) tokens.push_back(3 + (i * 37) % 250);
    for (int step = 0; step < 6; ++step) {
      const Status status = a.Feed(tokens);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(b.Feed(tokens).ok());
      double signal = 0, noise = 0;
      for (size_t i = 0; i < a.logits().size(); ++i) {
        signal += b.logits()[i] * b.logits()[i];
        noise += (a.logits()[i] - b.logits()[i]) * (a.logits()[i] - b.logits()[i]);
      }
      EXPECT_GT(signal, 1000 * noise) << "less than 30 dB after " << a.n_past() << " tokens";
      EXPECT_EQ(ArgMax(a.logits()), ArgMax(b.logits())) << a.n_past();
      tokens = {ArgMax(b.logits())};
    }
  }

  // A prompt of three chunks, then steps until two evictions are past. Both sides get the
  // host's tokens.
  void ExpectTheHostsTokensPastTheContext(HtpModelExecutor& htp, HostModelExecutor& host) {
    const AttentionSink sink = {package_->manifest().evictor->sink,
                                package_->manifest().evictor->batch};
    Generator a(&htp), b(&host);
    for (Generator* generator : {&a, &b}) {
      ASSERT_TRUE(generator->SetAttentionSink(sink, package_->manifest().config.rope).ok());
      EXPECT_TRUE(generator->evicts_by_executor());
    }
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < 44; ++i) tokens.push_back(3 + (i * 37) % 250);
    for (int step = 0; b.evictions() < 2 || step % 8 != 0; ++step) {
      const Status status = a.Feed(tokens);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(b.Feed(tokens).ok());
      ASSERT_EQ(a.evictions(), b.evictions());
      EXPECT_EQ(ArgMax(a.logits()), ArgMax(b.logits()))
          << "after " << b.evictions() << " evictions and " << a.n_past() << " tokens";
      tokens = {ArgMax(b.logits())};
    }
  }

  const test::UseTestWorker worker_{test::WorkerKind::kVendor};
  test::TempFolder folder_;
  CompileOptions compile_;
  HtpModelOptions options_;
  std::shared_ptr<const Package> package_;
};

TEST_F(HtpSimulatorTest, AgreesWithTheHost) {
  compile_.with_simulator = true;
  Make();
  ASSERT_TRUE(package_);
  EXPECT_FALSE(package_->manifest().shards[0].plain_file.empty());
  options_.run.performance = PerformanceMode::kBurst;
  options_.run.profile_level = ProfileLevel::kBasic;
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_EQ((*htp)->Describe(), "htp (x86 simulator, plain_0.bin)");
  ExpectTheHostsTokens(**htp);
  const std::vector<GraphProfile> profiles = (*htp)->TakeProfile();
  ASSERT_EQ(profiles.size(), 2u);
  EXPECT_EQ(profiles[0].graph, "prefill_forward");
  EXPECT_EQ(profiles[1].calls, 5u);
  EXPECT_GT(profiles[1].total_us, 0u);
}

TEST_F(HtpSimulatorTest, ShardsAgreeWithTheHost) {
  compile_.num_shards = 2;
  compile_.with_simulator = true;
  Make();
  ASSERT_TRUE(package_);
  // As if something spilled: the simulator refuses the group and goes on without.
  for (ShardInfo& shard : const_cast<PackageManifest&>(package_->manifest()).shards) {
    shard.max_spill_fill_bytes = 1 << 20;
  }
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_EQ((*htp)->Describe(), "htp (x86 simulator, plain_0.bin, plain_1.bin)");
  ExpectTheHostsTokens(**htp);
}

// Three chunks of a prompt behind a prefix, two evictions, and steps between and after.
TEST_F(HtpSimulatorTest, EvictionsAgreeWithTheHost) {
  compile_.with_simulator = true;
  compile_.prefix_tokens = "1,5";
  compile_.attention_sink = AttentionSink{4, 20};
  Make();
  ASSERT_TRUE(package_);
  ASSERT_TRUE(package_->manifest().evictor.has_value());
  EXPECT_EQ(package_->manifest().evictor->sink, 2u) << "the prefix";
  EXPECT_EQ(package_->manifest().evictor->context_file, "evictor.bin");
  for (const bool prepared : {false, true}) {
    options_.evictor = true;
    options_.run.online_prepare = prepared;
    auto htp = HtpModelExecutor::Open(package_, options_);
    ASSERT_TRUE(htp.ok()) << htp.status().ToString();
    if (!prepared) {
      EXPECT_EQ((*htp)->Describe(), "htp (x86 simulator, plain_0.bin, evictor.bin)");
    }
    const auto host = HostModelExecutor::Open(package_, {.threads = 1, .evictor = true});
    ASSERT_TRUE(host.ok()) << host.status().ToString();
    ExpectTheHostsTokensPastTheContext(**htp, **host);
  }
}

// The same with steps of several tokens: guesses that were right enter the cache.
TEST_F(HtpSimulatorTest, LookaheadAndEvictionsAgreeWithTheHost) {
  compile_.with_simulator = true;
  compile_.mode = "lookahead";
  compile_.context_len = 48;
  compile_.lookahead = {3, 2, 2};
  compile_.attention_sink = AttentionSink{2, 16};
  Make();
  ASSERT_TRUE(package_);
  options_.evictor = true;
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  const auto host = HostModelExecutor::Open(package_, {.threads = 1, .evictor = true});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  std::vector<uint32_t> answers[2];
  uint32_t steps[2] = {}, evictions[2] = {};
  for (int side = 0; side < 2; ++side) {
    ModelExecutor* executor = side == 0 ? static_cast<ModelExecutor*>(htp->get()) : host->get();
    Generator generator(executor);
    ASSERT_TRUE(generator.SetAttentionSink({2, 16}, package_->manifest().config.rope).ok());
    EXPECT_TRUE(generator.evicts_by_executor());
    auto decoder = LookaheadDecoder::Create(&generator, {3, 2, 2});
    ASSERT_TRUE(decoder.ok()) << decoder.status().ToString();
    std::vector<uint32_t> prompt;
    for (uint32_t i = 0; i < 20; ++i) prompt.push_back(3 + (i * 37) % 5);
    ASSERT_TRUE(generator.Feed(prompt).ok());
    decoder->StartAnswer(prompt);
    const LookaheadDecoder::Pick pick =
        [&](std::span<const float> logits) -> std::optional<uint32_t> {
      answers[side].push_back(ArgMax(logits));
      return answers[side].size() < 48 ? std::optional<uint32_t>(ArgMax(logits)) : std::nullopt;
    };
    std::optional<uint32_t> token = pick(generator.logits());
    while (token.has_value()) {
      auto next = decoder->Step(*token, pick);
      ASSERT_TRUE(next.ok()) << next.status().ToString();
      token = *next;
      ++steps[side];
    }
    evictions[side] = generator.evictions();
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_LT(steps[1], 47u) << "no guess was right";
  EXPECT_GE(evictions[1], 2u);
}

TEST_F(HtpSimulatorTest, APackageForADeviceOnlyRunsWhenItIsPreparedHere) {
  compile_.num_shards = 2;
  compile_.htp.slc_allocator = SlcAllocator::kOn;
  Make();
  ASSERT_TRUE(package_);
  EXPECT_TRUE(package_->manifest().weight_sharing);
  EXPECT_TRUE(package_->manifest().slc_allocator);
  EXPECT_EQ(HtpModelExecutor::Open(package_, options_).status().code(), StatusCode::kUnsupported);
  options_.run.online_prepare = true;
  std::vector<std::string> stages;
  options_.progress = [&](std::string_view stage, double) { stages.emplace_back(stage); };
  options_.dump = TensorDump::Create(folder_.File("dump")).value();
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_THAT(stages, ::testing::Contains(HasSubstr("shard 2 of 2: finalise kv_forward (")));
  ExpectTheHostsTokens(**htp);
  const std::string list = ReadFile(folder_.File("dump/000003/kv_forward/tensors.json")).value();
  EXPECT_THAT(list, HasSubstr("\"name\": \"layers.1.down\""));
}

TEST_F(HtpSimulatorTest, APackageOfGraphsAlone) {
  compile_.mode = "kv";
  compile_.htp.online_prepare = true;
  Make();
  ASSERT_TRUE(package_);
  EXPECT_EQ(package_->manifest().shards[0].context_file, "");
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  ExpectTheHostsTokens(**htp);
}

TEST_F(HtpSimulatorTest, ContextsCompiledForDumpsGiveEveryTensor) {
  compile_.mode = "kv";
  compile_.htp.dump_intermediates = true;
  Make();
  ASSERT_TRUE(package_);
  options_.dump = TensorDump::Create(folder_.File("htp")).value();
  auto htp = HtpModelExecutor::Open(package_, options_);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  auto host = HostModelExecutor::Open(package_, {.threads = 1, .cache_in_rows = true});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  const std::unique_ptr<ModelExecutor> dumped =
      DumpTensors(std::move(host).value(), TensorDump::Create(folder_.File("host")).value());
  Generator a(htp->get()), b(dumped.get());
  ASSERT_TRUE(a.Feed(std::vector<uint32_t>{5}).ok());
  ASSERT_TRUE(b.Feed(std::vector<uint32_t>{5}).ok());
  const std::map<std::string, std::string> left = FilesBelow(folder_.File("htp"));
  const std::map<std::string, std::string> right = FilesBelow(folder_.File("host"));
  EXPECT_GT(left.size(), 60u);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, values] : right) {
    ASSERT_TRUE(left.contains(name)) << name;
    if (!name.ends_with(".bin")) continue;  // the order is each side's own
    EXPECT_EQ(left.at(name).size(), values.size()) << name;
  }
}

TEST_F(HtpSimulatorTest, DamagedContextsAreErrorsOfTheWorker) {
  compile_.mode = "kv";
  Make();
  ASSERT_TRUE(package_);
  const std::string path = package_->PathOf("context_0.bin");
  const std::string whole = ReadFile(path).value();
  const auto damaged = [&](const std::string& contents) {
    EXPECT_TRUE(WriteFileAtomically(path, contents).ok());
    const Status checked = Package::Open(package_->path()).status();
    EXPECT_EQ(checked.code(), StatusCode::kCorruptData);
    EXPECT_THAT(checked.message(), HasSubstr("context_0.bin"));
    return HtpModelExecutor::Open(package_, options_).status();
  };
  for (const std::string& contents :
       {std::string(), whole.substr(0, 16), whole.substr(0, whole.size() / 2), whole + '\0'}) {
    const Status status = damaged(contents);
    EXPECT_FALSE(status.ok()) << contents.size();
    EXPECT_NE(status.code(), StatusCode::kVendorCrash) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("context_0.bin")) << contents.size();
  }
  // The vendor does not notice every flipped bit; a worker that dies of one is an error.
  std::string flipped = whole;
  flipped[100] ^= 0x10;
  (void)damaged(flipped);
}

}  // namespace
}  // namespace spillway
