// The vendor's own library: versions, a compiled and executed graph, proof of the
// SLC option from its log, spill-fill, and what the simulator cannot load.
// Skipped where the library is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "qnn/htp/power.h"
#include "tests/qnn/api/tiny_graph.h"
#include "tests/support/paths.h"

namespace spillway::qnn::htp {
namespace {

using test::TinyConv;
using ::testing::HasSubstr;
using ::testing::Not;

class RealLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::QnnLibDir();
    if (!dir_) {
      GTEST_SKIP() << "the vendor libraries are missing: .deps/qnn/onnxruntime_qnn/libQnnHtp.so";
    }
    const auto library = Library::Load(*dir_);
    ASSERT_TRUE(library.ok()) << library.status().ToString();
    library_ = *library;
    const auto system = SystemLibrary::Load(*dir_);
    ASSERT_TRUE(system.ok()) << system.status().ToString();
    system_ = *system;
    log_ = VendorLog::Create(library_, abi::kLogVerbose).value();
    backend_ = Backend::Create(log_).value();
  }
  void TearDown() override {
    device_.reset();
    backend_.reset();
    log_.reset();
    EXPECT_EQ(CountHandles().ToString(), "none");
  }

  // A context for these options, with a new device.
  Result<std::unique_ptr<Context>> NewContext(const HtpOptions& options) {
    SPILLWAY_ASSIGN_OR_RETURN(soc_, CheckOptions(options));
    SPILLWAY_ASSIGN_OR_RETURN(device_,
                              Device::Create(log_, MakeDeviceConfigs(*soc_, options.pd_session,
                                                                     library_->version().backend)));
    return Context::Create(backend_, device_, MakeContextConfigs(options));
  }
  Result<std::unique_ptr<Context>> Load(const std::vector<std::byte>& binary) {
    SPILLWAY_ASSIGN_OR_RETURN(const BinaryInfo info,
                              ReadBinaryInfo(*system_, binary, "the compiled binary"));
    return Context::Load(backend_, device_, binary, info, {});
  }

  std::optional<std::string> dir_;
  std::shared_ptr<const Library> library_;
  std::shared_ptr<const SystemLibrary> system_;
  std::shared_ptr<VendorLog> log_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Device> device_;
  const Soc* soc_ = nullptr;
};

void ExpectClose(const std::vector<uint16_t>& got, const std::vector<uint16_t>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  int worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
  EXPECT_LE(worst, 1);
}

TEST_F(RealLibrary, Versions) {
  EXPECT_EQ(library_->version().core.major, 2U);
  EXPECT_EQ(library_->version().backend.major, 5U);
  EXPECT_THAT(library_->build_id(), HasSubstr("v2."));
  EXPECT_EQ(system_->version().major, 1U);
  const auto operations = backend_->SupportedOperations();
  ASSERT_TRUE(operations.ok());
  EXPECT_THAT(*operations, ::testing::Contains("Conv2d"));
  EXPECT_GE(operations->size(), 129U);
}

TEST_F(RealLibrary, CompilesRunsDescribesAndLoadsATinyGraph) {
  const TinyConv conv;
  std::unique_ptr<Context> context = NewContext({}).value();
  Graph* graph = context->CreateGraph("tiny", MakeGraphConfigs({}, *soc_)).value();
  const Status built = test::BuildTinyConv(conv, graph);
  ASSERT_TRUE(built.ok()) << built.ToString();
  double last = 0;
  FinalizeOptions options;
  options.progress = [&last](std::string_view, double fraction) { last = fraction; };
  const auto prepared = graph->Finalize(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  EXPECT_FALSE(prepared->estimates.has_value());
  EXPECT_NEAR(last, 1, 1e-9);
  const auto y = test::RunTinyConv(conv, graph);
  ASSERT_TRUE(y.ok()) << y.status().ToString();
  ExpectClose(*y, conv.Expected(conv.Input()));

  const auto binary = context->GetBinary();
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  context.reset();
  const auto info = ReadBinaryInfo(*system_, *binary, "tiny");
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->soc_model, 69U);
  EXPECT_EQ(info->dsp_arch, 79U);
  EXPECT_EQ(info->build_id, library_->build_id());
  EXPECT_EQ(info->spill_fill_bytes, 0U);
  const BinaryGraph* described = info->FindGraph("tiny");
  ASSERT_NE(described, nullptr);
  ASSERT_EQ(described->inputs.size(), 1U);
  EXPECT_EQ(described->inputs[0].name, "x");
  EXPECT_EQ(described->inputs[0].dims, (std::vector<uint32_t>{1, 1, 4, 64}));
  EXPECT_EQ(described->inputs[0].encoding.offsets, std::vector<int32_t>{-32768});
  EXPECT_EQ(described->outputs[0].encoding.scales, std::vector<float>{conv.y_scale});
  ASSERT_TRUE(described->memory.has_value());
  EXPECT_EQ(described->memory->vtcm_bytes, uint64_t{8} << 20);
  EXPECT_EQ(described->memory->optimization_level, 3U);

  const auto loaded = Load(*binary);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const auto again = test::RunTinyConv(conv, (*loaded)->FindGraph("tiny"));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, *y);
  ASSERT_EQ(log_->facts().loaded.size(), 1U);
  EXPECT_EQ(log_->facts().loaded[0].slc_allocate, 0);
}

TEST_F(RealLibrary, LogProvesTheSlcOptionBothWays) {
  for (const bool slc : {true, false}) {
    HtpOptions options;
    EXPECT_EQ(options.slc_allocator, SlcAllocator::kOff);  // the default
    options.slc_allocator = slc ? SlcAllocator::kOn : SlcAllocator::kOff;
    std::unique_ptr<Context> context = NewContext(options).value();
    const std::string name = slc ? "with_slc" : "without_slc";
    Graph* graph = context->CreateGraph(name, MakeGraphConfigs(options, *soc_)).value();
    ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
    ASSERT_TRUE(graph->Finalize({}).ok());
    const LogFacts facts = log_->facts();
    const GraphLogFacts* graph_facts = facts.FindGraph(name);
    ASSERT_NE(graph_facts, nullptr);
    EXPECT_EQ(graph_facts->slc_allocate(), slc ? 1 : 0);
    EXPECT_EQ(graph_facts->optimizations.at(7), slc ? 1.0 : 0.0);
    EXPECT_EQ(graph_facts->options.at("soc_type"), "SM8750");
    EXPECT_EQ(graph_facts->options.at("vtcm_size"), std::to_string(8 << 20));
    EXPECT_EQ(graph_facts->slc_had_nothing_to_do, slc);
    EXPECT_EQ(facts.soc_id, 69U);
    EXPECT_TRUE(facts.fp16);
    EXPECT_EQ(facts.soc_without_estimates, "SM8750");
  }
}

TEST_F(RealLibrary, SlcBinaryCannotBeLoadedHereAndSaysSo) {
  HtpOptions options;
  options.slc_allocator = SlcAllocator::kOn;
  std::unique_ptr<Context> context = NewContext(options).value();
  Graph* graph = context->CreateGraph("tiny", MakeGraphConfigs(options, *soc_)).value();
  ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
  ASSERT_TRUE(graph->Finalize({}).ok());
  const auto binary = context->GetBinary();
  ASSERT_TRUE(binary.ok());
  const Status status = Load(*binary).status();
  EXPECT_EQ(status.code(), StatusCode::kVendor);
  EXPECT_THAT(status.message(), HasSubstr("6003 (0x1773)"));
  EXPECT_THAT(status.message(), HasSubstr("SLC allocator"));
  EXPECT_THAT(status.message(), HasSubstr("4003"));  // from the load's log lines
}

// up, down and residual with 1 MB of VTCM: more lives at once than fits.
Status BuildSpilling(Graph* graph, const TinyConv& up, const TinyConv& down) {
  const auto native = [&up](const std::string& name, uint32_t columns, TensorRole role) {
    return up.Activation(name, role, columns, 5e-3F);
  };
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId x,
                            graph->AddTensor(native("x", up.k, TensorRole::kAppWrite)));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId w_up, graph->AddTensor(up.Weights("w_up")));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId w_down, graph->AddTensor(down.Weights("w_down")));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId a,
                            graph->AddTensor(native("a", up.n, TensorRole::kNative)));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId b,
                            graph->AddTensor(native("b", up.n, TensorRole::kAppRead)));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId c,
                            graph->AddTensor(native("c", up.n, TensorRole::kNative)));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId d,
                            graph->AddTensor(native("d", up.k, TensorRole::kNative)));
  SPILLWAY_ASSIGN_OR_RETURN(const TensorId y,
                            graph->AddTensor(native("y", up.k, TensorRole::kAppRead)));
  SPILLWAY_RETURN_IF_ERROR(graph->AddNode(test::ConvOp("up", x, w_up, a)));
  SPILLWAY_RETURN_IF_ERROR(graph->AddNode(test::ConvOp("gate", x, w_up, b)));
  SPILLWAY_RETURN_IF_ERROR(
      graph->AddNode({"product", "ElementWiseMultiply", {a, b}, {c}, {}, kHtpPackage}));
  SPILLWAY_RETURN_IF_ERROR(graph->AddNode(test::ConvOp("down", c, w_down, d)));
  return graph->AddNode({"residual", "ElementWiseAdd", {x, d}, {y}, {}, kHtpPackage});
}

TEST_F(RealLibrary, SpillFillOfAGraphThatIsTooLargeForVtcm) {
  const TinyConv up(512, 512, 1024);
  const TinyConv down(512, 1024, 512);
  HtpOptions options;
  options.soc = "SA8255";  // has estimates
  options.vtcm_mb = 1;
  std::unique_ptr<Context> context = NewContext(options).value();
  Graph* graph = context->CreateGraph("spilling", MakeGraphConfigs(options, *soc_)).value();
  const Status built = BuildSpilling(graph, up, down);
  ASSERT_TRUE(built.ok()) << built.ToString();
  const auto prepared = graph->Finalize({abi::kProfileDetailed, {}});
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  const LogFacts facts = log_->facts();
  const GraphLogFacts* graph_facts = facts.FindGraph("spilling");
  ASSERT_TRUE(graph_facts->ddr.has_value());
  EXPECT_GT(graph_facts->ddr->spill_bytes, 0U);
  EXPECT_GE(graph_facts->ddr->read_total_bytes, graph_facts->ddr->fill_bytes);
  EXPECT_EQ(graph_facts->stages.size(), 8U);
  ASSERT_TRUE(prepared->estimates.has_value());
  EXPECT_EQ(prepared->estimates->intermediate_spill_bytes, graph_facts->ddr->spill_bytes);
  EXPECT_EQ(prepared->estimates->intermediate_fill_bytes, graph_facts->ddr->fill_bytes);
  EXPECT_GT(prepared->estimates->cycles.value, prepared->estimates->cycles.lower);
  EXPECT_LT(prepared->estimates->cycles.value, prepared->estimates->cycles.upper);
  EXPECT_GT(prepared->estimates->microseconds.value, 0U);
  const auto binary = context->GetBinary();
  ASSERT_TRUE(binary.ok());
  const auto info = ReadBinaryInfo(*system_, *binary, "spilling");
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_GT(info->spill_fill_bytes, 0U);
  EXPECT_EQ(info->graphs[0].memory->spill_fill_bytes, info->spill_fill_bytes);
  EXPECT_EQ(info->graphs[0].memory->vtcm_bytes, uint64_t{1} << 20);
  EXPECT_EQ(info->soc_model, 52U);
}

TEST_F(RealLibrary, TwoGraphsShareTheirWeights) {
  HtpOptions options;
  options.weight_sharing = true;
  const TinyConv conv(4, 256, 256);
  std::unique_ptr<Context> context = NewContext(options).value();
  for (const char* name : {"prefill_forward", "kv_forward"}) {
    Graph* graph = context->CreateGraph(name, MakeGraphConfigs(options, *soc_)).value();
    ASSERT_TRUE(test::BuildTinyConv(conv, graph).ok());
    ASSERT_TRUE(graph->Finalize({}).ok());
  }
  const auto binary = context->GetBinary();
  ASSERT_TRUE(binary.ok());
  const auto info = ReadBinaryInfo(*system_, *binary, "shared");
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  ASSERT_EQ(info->graphs.size(), 2U);
  ASSERT_NE(info->FindGraph("prefill_forward"), nullptr);
  ASSERT_NE(info->FindGraph("kv_forward"), nullptr);
  EXPECT_GE(info->FindGraph("kv_forward")->memory->shared_weight_bytes, 256U * 256U);
  const Status status = Load(*binary).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("without weight sharing for the simulator"));
}

TEST_F(RealLibrary, RefusedAndUnknownOperations) {
  ASSERT_TRUE(NewContext({}).ok());
  const TinyConv conv;
  OpQuery query;
  query.name = "add";
  query.type = "ElementWiseAdd";
  query.inputs = {conv.Activation("a", TensorRole::kAppWrite, 64, 1e-3F),
                  conv.Activation("b", TensorRole::kAppWrite, 64, 1e-3F)};
  query.outputs = {conv.Activation("y", TensorRole::kAppRead, 64, 1e-3F)};
  EXPECT_TRUE(backend_->Validate(query).ok());
  query.inputs[1].dtype = DataType::kUfixed8;
  Status status = backend_->Validate(query);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("3110 (0xc26)"));
  EXPECT_THAT(status.message(), HasSubstr("a u16 [1, 1, 4, 64]"));
  EXPECT_THAT(status.message(), HasSubstr("b u8 [1, 1, 4, 64]"));
  EXPECT_THAT(status.message(), HasSubstr("mismatching datatypes"));  // the vendor's own words
  EXPECT_THAT(status.message(), Not(HasSubstr("<E>")));
  query.type = "Swish";
  status = backend_->Validate(query);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("type Swish"));
  EXPECT_THAT(status.message(), HasSubstr("4005 (0xfa5)"));
}

TEST_F(RealLibrary, DamagedBinaryIsRefusedByBothLibraries) {
  ASSERT_TRUE(NewContext({}).ok());
  const std::vector<std::byte> junk(5000, std::byte{7});
  EXPECT_EQ(ReadBinaryInfo(*system_, junk, "junk.bin").status().code(), StatusCode::kCorruptData);
  const Status status = Context::Load(backend_, device_, junk, BinaryInfo(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kVendor);
}

TEST_F(RealLibrary, UnknownSocNumberIsRefusedByTheLibrary) {
  Soc soc = **FindSoc("SM8750");
  soc.id = 200;
  const Status status = Device::Create(log_, MakeDeviceConfigs(soc, PdSession::kUnsigned,
                                                               library_->version().backend))
                            .status();
  EXPECT_THAT(status.message(), HasSubstr("14001 (0x36b1)"));
  EXPECT_THAT(status.message(), HasSubstr("socModel"));
}

TEST_F(RealLibrary, SignedDomainAndPowerVotesAreTaken) {
  HtpOptions options;
  options.pd_session = PdSession::kSigned;
  ASSERT_TRUE(NewContext(options).ok());
  const auto vote = PowerVote::Create(device_);
  ASSERT_TRUE(vote.ok()) << vote.status().ToString();
  for (int mode = 0; mode <= static_cast<int>(PerformanceMode::kExtremePowerSaver); ++mode) {
    HtpOptions wanted;
    wanted.performance = static_cast<PerformanceMode>(mode);
    wanted.sleep_latency_us = 50;
    const Status status = (*vote)->Set(wanted);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_F(RealLibrary, FinalizeConfigReachesTheCompiler) {
  const test::TempFolder folder;
  HtpOptions options;
  options.soc = "SA8255";
  options.finalize_config = {{"sim_trace_final", folder.File("trace.json")}};
  std::unique_ptr<Context> context = NewContext(options).value();
  Graph* graph = context->CreateGraph("traced", MakeGraphConfigs(options, *soc_)).value();
  ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
  ASSERT_TRUE(graph->Finalize({}).ok());
  EXPECT_EQ(log_->facts().FindGraph("traced")->options.at("sim_trace_final"),
            folder.File("trace.json"));
  EXPECT_TRUE(FileExists(folder.File("trace.json")));
}

TEST_F(RealLibrary, SystemLibraryInPlaceOfHtpNamesTheSymbol) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.File("onnxruntime_qnn"));
  std::filesystem::create_symlink(*dir_ + "/../onnxruntime_qnn.libs",
                                  folder.File("onnxruntime_qnn.libs"));
  std::filesystem::create_symlink(*dir_ + "/libQnnSystem.so",
                                  folder.File("onnxruntime_qnn/libQnnHtp.so"));
  const Status status = Library::Load(folder.File("onnxruntime_qnn")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("QnnInterface_getProviders"));
}

}  // namespace
}  // namespace spillway::qnn::htp
