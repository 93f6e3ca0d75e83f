#include "runtime/htp_model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/thread_pool.h"
#include "host/executor.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/sampler.h"
#include "tests/runtime/test_worker.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

// A "context" that runs the package's graphs on the host. Its tensors come in
// another order than the graphs'.
class HostContext : public ContextRunner {
 public:
  HostContext(const Package& package, uint32_t shard) {
    for (const char* name : {kDecodeGraphName, kPrefillGraphName}) {
      Result<std::shared_ptr<const Graph>> graph = package.FindGraph(shard, name);
      if (!graph.ok()) continue;
      ContextGraph& context = info_.graphs.emplace_back();
      context.name = name;
      for (const TensorId id : (*graph)->inputs())
        context.inputs.push_back(Of((*graph)->tensor(id)));
      for (const TensorId id : (*graph)->outputs()) {
        context.outputs.push_back(Of((*graph)->tensor(id)));
      }
      std::reverse(context.inputs.begin(), context.inputs.end());
      std::reverse(context.outputs.begin(), context.outputs.end());
      executors_.push_back(host::Executor::Create(*graph, &pool_).value());
    }
  }

  ContextInfo& mutable_info() { return info_; }
  Status Execute(size_t graph) override {
    ++executions;
    return executors_[graph]->Run();
  }
  int executions = 0;

 protected:
  Status UseMemory(const IoLayout& layout) override {
    for (size_t g = 0; g < executors_.size(); ++g) {
      const std::vector<uint64_t>&in = layout.graphs[g].inputs, &out = layout.graphs[g].outputs;
      for (size_t i = 0; i < in.size(); ++i) {
        executors_[g]->BindInput(in.size() - 1 - i, memory().data() + in[i]);
      }
      for (size_t i = 0; i < out.size(); ++i) {
        executors_[g]->BindOutput(out.size() - 1 - i, memory().data() + out[i]);
      }
    }
    return OkStatus();
  }

 private:
  static ContextTensor Of(const Tensor& tensor) {
    return {tensor.name, tensor.dtype, tensor.shape};
  }
  ThreadPool pool_{1};
  std::vector<std::unique_ptr<host::Executor>> executors_;
};

std::shared_ptr<const Package> OpenPackage(const std::string& path) {
  Result<std::shared_ptr<const Package>> package = Package::Open(path);
  EXPECT_TRUE(package.ok()) << package.status().ToString();
  return package.ok() ? *package : nullptr;
}

// The package with a context file named in its manifest, which HostContext plays.
class HtpModelExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    package_ = OpenPackage(test::MakeTinyPackage(folder_.path()));
    ASSERT_TRUE(package_);
    // The manifest of an opened package is constant to all but this test.
    const_cast<PackageManifest&>(package_->manifest()).shards[0].context_file = "context_0.bin";
    const_cast<PackageManifest&>(package_->manifest()).weight_sharing = false;
    const_cast<PackageManifest&>(package_->manifest()).slc_allocator = false;
  }

  Result<std::unique_ptr<HtpModelExecutor>> Open(const std::function<void(ContextInfo&)>& change =
                                                     [](ContextInfo&) {}) {
    HtpModelOptions options;
    options.open =
        [&](const ContextRunnerOptions& runner_options) -> Result<std::unique_ptr<ContextRunner>> {
      EXPECT_EQ(runner_options.context_path, package_->PathOf("context_0.bin"));
      EXPECT_EQ(runner_options.soc, package_->manifest().soc);
      auto context = std::make_unique<HostContext>(*package_, 0);
      change(context->mutable_info());
      return std::unique_ptr<ContextRunner>(std::move(context));
    };
    return HtpModelExecutor::Open(package_, options);
  }

  test::TempFolder folder_;
  std::shared_ptr<const Package> package_;
};

TEST_F(HtpModelExecutorTest, GivesTheIntegersOfTheHostExecutor) {
  Result<std::unique_ptr<HtpModelExecutor>> htp = Open();
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
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

TEST_F(HtpModelExecutorTest, ContextsThatAreNotThePackages) {
  const auto error = [&](const std::function<void(ContextInfo&)>& change) {
    const Status status = Open(change).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].name = "other"; }),
              HasSubstr("kv_forward is not in the context"));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].inputs[0].name = "other"; }),
              HasSubstr("no tensor \"v_cache_1\""));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[1].outputs[0].dtype = DType::kU16; }),
              HasSubstr("prefill_forward"));
  EXPECT_THAT(error([](ContextInfo& info) { info.graphs[0].inputs.pop_back(); }),
              HasSubstr("inputs"));
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
  EXPECT_EQ(choose(true).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(choose(true).status().message(), HasSubstr("error 1000"));
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
TEST(HtpSimulatorTest, AgreesWithTheHost) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "only the x86-64 library has a simulator";
#endif
  if (!test::QnnLibDir()) {
    GTEST_SKIP() << "no vendor libraries in SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn";
  }
  const test::UseTestWorker worker(test::WorkerKind::kVendor);
  test::TempFolder folder;
  CompileOptions compile = test::TinyCompileOptions();
  compile.htp_build = HtpBuild::kOn;
  compile.qnn_lib_dir = *test::QnnLibDir();
  compile.with_simulator = true;
  const std::shared_ptr<const Package> package =
      OpenPackage(test::MakeTinyPackage(folder.path(), compile));
  ASSERT_TRUE(package);
  EXPECT_FALSE(package->manifest().shards[0].plain_file.empty());
  HtpModelOptions options;
  options.qnn_lib_dir = *test::QnnLibDir();
  auto htp = HtpModelExecutor::Open(package, options);
  ASSERT_TRUE(htp.ok()) << htp.status().ToString();
  EXPECT_EQ((*htp)->Describe(), "htp (x86 simulator, plain_0.bin)");
  auto host = HostModelExecutor::Open(package, {.threads = 1});
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  Generator a(htp->get()), b(host->get());
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

}  // namespace
}  // namespace spillway
