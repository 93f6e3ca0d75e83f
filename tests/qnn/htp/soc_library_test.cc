// The SoC table against the vendor's own library: what it says, logs and writes
// into a context binary for each SoC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "tests/qnn/api/tiny_graph.h"
#include "tests/support/paths.h"

namespace spillway::qnn::htp {
namespace {

using test::TinyConv;
using ::testing::HasSubstr;

class SocLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto dir = test::QnnLibDir();
    if (!dir) {
      GTEST_SKIP() << "the vendor libraries are missing: .deps/qnn/onnxruntime_qnn/libQnnHtp.so";
    }
    library_ = Library::Load(*dir).value();
    system_ = SystemLibrary::Load(*dir).value();
  }
  void TearDown() override { EXPECT_EQ(CountHandles().ToString(), "none"); }

  struct Said {
    BinaryGraph graph;
    uint32_t soc_model = 0, arch = 0;
    LogFacts facts;
    bool estimated = false;
  };
  static bool AsksForEstimates(const Soc& soc) { return !soc.estimates || soc.id == 52; }
  // Compiles the smallest graph for `soc`, with a log of its own.
  Result<Said> Ask(const Soc& soc) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto log, VendorLog::Create(library_, abi::kLogVerbose));
    SPILLWAY_ASSIGN_OR_RETURN(const auto backend, Backend::Create(log));
    SPILLWAY_ASSIGN_OR_RETURN(const auto device,
                              Device::Create(log, MakeDeviceConfigs(soc, PdSession::kUnsigned,
                                                                    library_->version().backend)));
    SPILLWAY_ASSIGN_OR_RETURN(const auto context, Context::Create(backend, device, {}));
    HtpOptions options;
    options.dlbc = true;
    SPILLWAY_ASSIGN_OR_RETURN(Graph * graph,
                              context->CreateGraph("tiny", MakeGraphConfigs(options, soc)));
    SPILLWAY_RETURN_IF_ERROR(test::BuildTinyConv(TinyConv(), graph));
    FinalizeOptions finalize;
    // A cost model takes a second: one of those that have it is enough.
    if (AsksForEstimates(soc)) finalize.profile_level = abi::kProfileDetailed;
    SPILLWAY_ASSIGN_OR_RETURN(const FinalizeResult prepared, graph->Finalize(finalize));
    SPILLWAY_ASSIGN_OR_RETURN(const auto binary, context->GetBinary());
    SPILLWAY_ASSIGN_OR_RETURN(const BinaryInfo info, ReadBinaryInfo(*system_, binary, "tiny"));
    return Said{info.graphs.at(0), info.soc_model, info.dsp_arch, log->facts(),
                prepared.estimates.has_value()};
  }

  // u16 x u16, the product that needs v73.
  Status AskForMatMul16(const Soc& soc) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto log, VendorLog::Create(library_, abi::kLogError));
    SPILLWAY_ASSIGN_OR_RETURN(const auto backend, Backend::Create(log));
    SPILLWAY_ASSIGN_OR_RETURN(const auto device,
                              Device::Create(log, MakeDeviceConfigs(soc, PdSession::kUnsigned,
                                                                    library_->version().backend)));
    const TinyConv conv;
    OpQuery query;
    query.name = "product";
    query.type = "MatMul";
    query.inputs = {conv.Activation("a", TensorRole::kAppWrite, 64, 1e-3F),
                    conv.Activation("b", TensorRole::kAppWrite, 64, 1e-3F)};
    query.outputs = {conv.Activation("y", TensorRole::kAppRead, 4, 1e-3F)};
    query.params = {{"transpose_in0", false}, {"transpose_in1", true}};
    return backend->Validate(query);
  }

  std::shared_ptr<const Library> library_;
  std::shared_ptr<const SystemLibrary> system_;
};

TEST_F(SocLibrary, EveryRowIsWhatTheLibrarySays) {
  for (const Soc& soc : AllSocs()) {
    const Result<Said> said = Ask(soc);
    EXPECT_EQ(said.ok(), soc.prepares) << soc.name << ": " << said.status().ToString();
    if (!said.ok()) {
      EXPECT_THAT(said.status().message(), HasSubstr("1002 (0x3ea)")) << soc.name;
      continue;
    }
    EXPECT_EQ(said->soc_model, soc.id) << soc.name;
    EXPECT_EQ(said->facts.soc_id, soc.id) << soc.name;
    EXPECT_EQ(said->facts.soc_name, soc.name);
    EXPECT_EQ(said->arch, soc.arch) << soc.name;
    EXPECT_EQ(said->facts.fp16, soc.fp16) << soc.name;
    EXPECT_EQ(said->facts.soc_without_estimates, soc.estimates ? "" : soc.name);
    if (AsksForEstimates(soc)) {
      EXPECT_EQ(said->estimated, soc.estimates) << soc.name;
    }
    ASSERT_TRUE(said->graph.memory.has_value());
    EXPECT_EQ(said->graph.memory->vtcm_bytes, uint64_t{soc.vtcm_mb} << 20) << soc.name;
    EXPECT_EQ(said->graph.memory->dlbc, soc.dlbc()) << soc.name;
  }
}

TEST_F(SocLibrary, ProductsOfTwo16BitValues) {
  for (const char* name : {"SM8350", "SM8450", "SM8550", "SM8650", "SM8750", "SM8850", "SM8975"}) {
    const Soc& soc = **FindSoc(name);
    const Status status = AskForMatMul16(soc);
    EXPECT_EQ(status.ok(), soc.matmul_16x16()) << name << ": " << status.ToString();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << name;
    }
  }
}

}  // namespace
}  // namespace spillway::qnn::htp
