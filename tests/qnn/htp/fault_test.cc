// What goes wrong with the vendor's own library: graphs that cannot be prepared and
// context binaries that are damaged. Always an error, nothing left behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "qnn/api/context_manager.h"
#include "qnn/api/handle_counts.h"
#include "qnn/htp/options.h"
#include "tests/qnn/api/tiny_graph.h"
#include "tests/support/paths.h"

namespace spillway::qnn::htp {
namespace {

using test::TinyConv;
using ::testing::HasSubstr;

class Fault : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::QnnLibDir()) {
      GTEST_SKIP() << "the vendor libraries are missing: .deps/qnn/onnxruntime_qnn/libQnnHtp.so";
    }
  }
  void TearDown() override { EXPECT_EQ(CountHandles().ToString(), "none"); }

  static ContextSetup MakeSetup(std::string_view soc = "SM8750") {
    ContextSetup setup;
    setup.library_dir = *test::QnnLibDir();
    setup.log_level = abi::kLogError;
    const Soc* found = FindSoc(soc).value();
    setup.device_configs = [found](const Library& library) -> Result<DeviceConfigs> {
      return MakeDeviceConfigs(*found, PdSession::kUnsigned, library.version().backend);
    };
    setup.graph_configs = [found](const std::string&) { return MakeGraphConfigs({}, *found); };
    return setup;
  }

  static Result<std::vector<std::byte>> CompileTiny(std::string_view soc = "SM8750") {
    ContextManager manager(MakeSetup(soc));
    SPILLWAY_RETURN_IF_ERROR(manager.InitContext({"tiny"}));
    SPILLWAY_RETURN_IF_ERROR(test::BuildTinyConv(TinyConv(), manager.FindGraph("tiny")));
    SPILLWAY_ASSIGN_OR_RETURN(const auto binary, manager.Compile({}));
    return std::vector<std::byte>(binary.begin(), binary.end());
  }

  // Describes, loads and runs `binary`, all of which may fail.
  static Status TryBinary(std::span<const std::byte> binary, const char* name) {
    ContextSetup setup = MakeSetup();
    setup.binary = binary;
    setup.binary_name = name;
    ContextManager manager(std::move(setup));
    SPILLWAY_RETURN_IF_ERROR(manager.InitContext({"tiny"}));
    return test::RunTinyConv(TinyConv(), manager.FindGraph("tiny")).status();
  }
};

// 4-bit weights in blocks, for an operation that takes them only in words: the node is
// accepted, and then the compiler finds no way to compute it.
Status AddImpossible(ContextManager& manager, const std::string& graph) {
  constexpr uint32_t kInputs = 576, kOutputs = 1536, kBlock = 32;
  TensorDesc x = TinyConv().Activation("x", TensorRole::kAppWrite, kInputs, 1e-3F);
  x.dims = {8, kInputs};
  TensorDesc y = x;
  y.name = "y";
  y.role = TensorRole::kAppRead;
  y.dims = {8, kOutputs};
  const std::vector<int8_t> values(size_t{kInputs} * kOutputs, 3);
  TensorDesc w;
  w.name = "w";
  w.role = TensorRole::kStatic;
  w.dtype = DataType::kSfixed8;
  w.dims = {kOutputs, kInputs};
  w.data = std::as_bytes(std::span(values));
  w.encoding.kind = TensorEncoding::Kind::kBlockwise;
  w.encoding.bitwidth = 4;
  w.encoding.scales.assign(kOutputs, 0.01F);
  w.encoding.blocks_per_axis = kInputs / kBlock;
  w.encoding.block_scales.assign(size_t{kOutputs} * kInputs / kBlock, 2);
  const TensorDesc tensors[] = {x, w, y};
  SPILLWAY_ASSIGN_OR_RETURN(const auto ids, manager.AllocateTensors(graph, tensors));
  OpDesc op;
  op.name = "product";
  op.type = "FullyConnected";
  op.inputs = {ids[0], ids[1]};
  op.outputs = {ids[2]};
  return manager.FindGraph(graph)->AddNode(op);
}

TEST_F(Fault, PreparationThatFailsIsAnErrorAndTheLibraryGoesOn) {
  {
    ContextManager manager(MakeSetup());
    ASSERT_TRUE(manager.InitContext({"impossible"}).ok());
    const Status added = AddImpossible(manager, "impossible");
    ASSERT_TRUE(added.ok()) << added.ToString();
    const Status status = manager.Compile({}).status();
    EXPECT_EQ(status.code(), StatusCode::kVendor);
    EXPECT_THAT(status.message(), HasSubstr("finalising graph 'impossible' failed"));
    EXPECT_THAT(status.message(), HasSubstr("error 1002 (0x3ea)"));
    EXPECT_THAT(status.message(), HasSubstr("unusual data types"));
    EXPECT_FALSE(manager.FindGraph("impossible")->finalized());
    // Such a context gives no binary, and says so each time.
    EXPECT_FALSE(manager.Compile({}).ok());
  }
  EXPECT_EQ(CountHandles().ToString(), "none");
  EXPECT_TRUE(CompileTiny().ok());
}

TEST_F(Fault, EmptyGraphIsAnError) {
  ContextManager manager(MakeSetup());
  ASSERT_TRUE(manager.InitContext({"empty"}).ok());
  EXPECT_THAT(manager.Compile({}).status().message(), HasSubstr("6022 (0x1786)"));
}

TEST_F(Fault, CutAndForeignBytesAreErrors) {
  const auto good = CompileTiny();
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_TRUE(TryBinary(*good, "good.bin").ok());
  std::vector<std::vector<std::byte>> damaged;
  for (const size_t size : {size_t{1}, size_t{16}, size_t{1024}, good->size() / 2,
                            good->size() - 4096, good->size() - 1}) {
    damaged.emplace_back(good->begin(), good->begin() + static_cast<ptrdiff_t>(size));
  }
  damaged.push_back(*good);
  damaged.back().resize(good->size() + 4096);
  damaged.emplace_back(good->size());  // zeros
  std::mt19937 random(3);
  damaged.emplace_back(good->size());
  for (std::byte& byte : damaged.back()) byte = static_cast<std::byte>(random());
  for (const auto& bytes : damaged) {
    const Status status = TryBinary(bytes, "damaged.bin");
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << bytes.size() << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("damaged.bin"));
    EXPECT_EQ(CountHandles().ToString(), "none");
    // The loader itself, behind our own check.
    const auto log = VendorLog::Create(Library::Load(*test::QnnLibDir()).value(), abi::kLogError);
    const auto backend = Backend::Create(*log);
    const auto device = Device::Create(*log, {});
    const Status loaded = Context::Load(*backend, *device, bytes, BinaryInfo(), {}).status();
    EXPECT_EQ(loaded.code(), StatusCode::kVendor) << bytes.size();
    EXPECT_THAT(loaded.message(), ::testing::AnyOf(HasSubstr("30001"), HasSubstr("30010")));
  }
  const auto system = SystemLibrary::Load(*test::QnnLibDir()).value();
  EXPECT_EQ(ReadBinaryInfo(*system, {}, "empty.bin").status().code(), StatusCode::kCorruptData);
}

// The vendor checks the length only: what has a flipped bit may load and give other
// numbers, or crash the library. So packages keep hashes, and binaries are loaded by a
// process of their own; here each by one.
TEST_F(Fault, FlippedBitsEndInAnErrorOrInTheLoadersProcessOnly) {
  const auto good = CompileTiny();
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  const test::TempFolder folder;
  std::mt19937 random(17);
  int survived = 0;
  constexpr int kFlips = 16;
  for (int i = 0; i < kFlips; ++i) {
    std::vector<std::byte> bytes = *good;
    bytes[random() % (i % 2 == 0 ? 4096 : bytes.size())] ^=
        static_cast<std::byte>(1U << random() % 8);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // a load that hangs is a failure too
      (void)TryBinary(bytes, "flipped.bin");
      _exit(CountHandles().total() == 0 ? 0 : 3);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    if (WIFEXITED(state)) {
      EXPECT_EQ(WEXITSTATUS(state), 0) << "handles leaked, flip " << i;
      ++survived;
    } else {
      EXPECT_NE(WTERMSIG(state), SIGALRM) << "hangs, flip " << i;
    }
  }
  EXPECT_GE(survived, kFlips / 2);
}

// The simulator loads it without a word, so the description is what tells.
TEST_F(Fault, BinaryOfAnotherSocIsToldByItsDescription) {
  const auto binary = CompileTiny("SM8550");
  ASSERT_TRUE(binary.ok());
  ContextSetup setup = MakeSetup();
  setup.binary = *binary;
  ContextManager manager(std::move(setup));
  ASSERT_TRUE(manager.InitContextCache().ok());
  EXPECT_EQ(manager.cache()->soc_model, 43U);
  EXPECT_EQ(manager.cache()->dsp_arch, 73U);
}

}  // namespace
}  // namespace spillway::qnn::htp
