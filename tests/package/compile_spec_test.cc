#include "package/compile_spec.h"

#include <flatbuffers/flatbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "base/file.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

CompileSpec Full() {
  CompileSpec spec;
  spec.soc_model = 69;
  spec.htp_arch = 79;
  spec.vtcm_size_in_mb = 8;
  spec.lpai_hardware_version = SpecLpaiHardware::kV6;
  spec.backend_type = SpecBackend::kHtp;
  spec.htp = SpecHtpOptions{50528256,
                            SpecHtpPerformance::kBurst,
                            SpecHtpPrecision::kFp16,
                            SpecPdSession::kSigned,
                            true,
                            true,
                            true,
                            true,
                            true,
                            true};
  spec.gpu =
      SpecGpuOptions{SpecGpuPerformance::kLow, SpecGpuPrecision::kHybrid, true, true, true, true};
  spec.lpai = SpecLpaiOptions{
      30, -5, SpecLpaiClient::kNonRealTime, SpecLpaiAffinity::kHard, 7, SpecLpaiTarget::kAdsp};
  spec.library_path = "libQnnHtp.so";
  spec.log_level = SpecLogLevel::kDebug;
  spec.online_prepare = true;
  spec.dump_intermediate_outputs = true;
  spec.profile_level = SpecProfileLevel::kOptrace;
  spec.shared_buffer = true;
  spec.is_from_context_binary = true;
  spec.saver = true;
  spec.saver_output_dir = "saver_output";
  spec.op_packages = {
      {"ours", "/vendor/libOurs.so", "OursInterfaceProvider", SpecOpPackageTarget::kHtp, "our.op",
       "OurOp", SpecOpPackagePlatform::kAarch64Android},
      {"second", "", "", SpecOpPackageTarget::kCpu, "", "", SpecOpPackagePlatform::kX86_64}};
  spec.use_mha2sha = true;
  return spec;
}

CompileSpec RoundTrip(const CompileSpec& spec) {
  const Result<std::vector<std::byte>> bytes = EncodeCompileSpec(spec);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  if (!bytes.ok()) return {};
  const Result<CompileSpec> read = DecodeCompileSpec(*bytes);
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  return read.ok() ? *read : CompileSpec();
}

TEST(CompileSpec, AllFieldsTogetherComeBack) { EXPECT_EQ(RoundTrip(Full()), Full()); }
TEST(CompileSpec, DefaultsComeBack) { EXPECT_EQ(RoundTrip({}), CompileSpec()); }

// Every field alone: the others keep their defaults.
TEST(CompileSpec, EachFieldAloneComesBack) {
  const CompileSpec full = Full();
  using Set = std::function<void(CompileSpec&)>;
  const Set sets[] = {
      [&](CompileSpec& s) { s.soc_model = 114; },
      [&](CompileSpec& s) { s.htp_arch = 85; },
      [&](CompileSpec& s) { s.vtcm_size_in_mb = 0xffffffff; },
      [&](CompileSpec& s) { s.lpai_hardware_version = SpecLpaiHardware::kV7; },
      [&](CompileSpec& s) { s.backend_type = SpecBackend::kLpai; },
      [&](CompileSpec& s) { s.htp.emplace(); },
      [&](CompileSpec& s) { s.htp.emplace().max_sf_buf_size = 2147483647; },
      [&](CompileSpec& s) { s.htp.emplace().performance_mode = full.htp->performance_mode; },
      [&](CompileSpec& s) { s.htp.emplace().precision = full.htp->precision; },
      [&](CompileSpec& s) { s.htp.emplace().pd_session = full.htp->pd_session; },
      [&](CompileSpec& s) { s.htp.emplace().use_conv_hmx = true; },
      [&](CompileSpec& s) { s.htp.emplace().use_dlbc = true; },
      [&](CompileSpec& s) { s.htp.emplace().use_fold_relu = true; },
      [&](CompileSpec& s) { s.htp.emplace().use_multi_contexts = true; },
      [&](CompileSpec& s) { s.htp.emplace().use_weight_sharing = true; },
      [&](CompileSpec& s) { s.htp.emplace().use_slc_allocator = true; },
      [&](CompileSpec& s) { s.gpu.emplace(); },
      [&](CompileSpec& s) { s.gpu.emplace().performance_mode = full.gpu->performance_mode; },
      [&](CompileSpec& s) { s.gpu.emplace().precision = full.gpu->precision; },
      [&](CompileSpec& s) { s.gpu.emplace().use_memory_optimizations = true; },
      [&](CompileSpec& s) { s.gpu.emplace().use_node_optimizations = true; },
      [&](CompileSpec& s) { s.gpu.emplace().use_queue_recording = true; },
      [&](CompileSpec& s) { s.gpu.emplace().use_weight_sharing = true; },
      [&](CompileSpec& s) { s.lpai.emplace(); },
      [&](CompileSpec& s) { s.lpai.emplace().fps = -2147483647; },
      [&](CompileSpec& s) { s.lpai.emplace().ftrt_ratio = 10; },
      [&](CompileSpec& s) { s.lpai.emplace().client_perf_type = full.lpai->client_perf_type; },
      [&](CompileSpec& s) { s.lpai.emplace().affinity = full.lpai->affinity; },
      [&](CompileSpec& s) { s.lpai.emplace().core_selection = 0xffffffff; },
      [&](CompileSpec& s) { s.lpai.emplace().target_env = full.lpai->target_env; },
      [&](CompileSpec& s) { s.library_path = full.library_path; },
      [&](CompileSpec& s) { s.log_level = full.log_level; },
      [&](CompileSpec& s) { s.online_prepare = true; },
      [&](CompileSpec& s) { s.dump_intermediate_outputs = true; },
      [&](CompileSpec& s) { s.profile_level = full.profile_level; },
      [&](CompileSpec& s) { s.shared_buffer = true; },
      [&](CompileSpec& s) { s.is_from_context_binary = true; },
      [&](CompileSpec& s) { s.saver = true; },
      [&](CompileSpec& s) { s.saver_output_dir = full.saver_output_dir; },
      [&](CompileSpec& s) { s.op_packages.emplace_back(); },
      [&](CompileSpec& s) { s.op_packages.emplace_back().op_package_name = "a"; },
      [&](CompileSpec& s) { s.op_packages.emplace_back().op_package_path = "b"; },
      [&](CompileSpec& s) { s.op_packages.emplace_back().interface_provider = "c"; },
      [&](CompileSpec& s) { s.op_packages.emplace_back().target = SpecOpPackageTarget::kCpu; },
      [&](CompileSpec& s) { s.op_packages.emplace_back().custom_op_name = "d"; },
      [&](CompileSpec& s) { s.op_packages.emplace_back().qnn_op_type_name = "e"; },
      [&](CompileSpec& s) {
        s.op_packages.emplace_back().platform = SpecOpPackagePlatform::kX86_64;
      },
      [&](CompileSpec& s) { s.use_mha2sha = true; },
  };
  for (size_t i = 0; i < std::size(sets); ++i) {
    CompileSpec spec;
    sets[i](spec);
    EXPECT_NE(spec, CompileSpec()) << i;
    EXPECT_EQ(RoundTrip(spec), spec) << i;
  }
}

TEST(CompileSpec, ValuesTooLargeForTheFileSayValueAndLimit) {
  CompileSpec spec = Full();
  spec.htp->max_sf_buf_size = 3'000'000'000;
  Status status = EncodeCompileSpec(spec).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("htp_options.max_sf_buf_size is 3000000000"));
  EXPECT_THAT(status.message(), HasSubstr("at most 2147483647"));
  spec.htp->max_sf_buf_size = uint64_t{1} << 32;  // its low half would be 0
  EXPECT_FALSE(EncodeCompileSpec(spec).ok());
  spec = Full();
  spec.soc_model = 0x80000000;
  EXPECT_THAT(EncodeCompileSpec(spec).status().message(), HasSubstr("soc_model"));
  spec = Full();
  spec.log_level = static_cast<SpecLogLevel>(6);
  EXPECT_THAT(EncodeCompileSpec(spec).status().message(), HasSubstr("log_level is 6"));
}

// ---- The wire, without our schema: field n of a table is at vtable entry n.

using Builder = flatbuffers::FlatBufferBuilder;

flatbuffers::voffset_t Entry(int field) {
  return static_cast<flatbuffers::voffset_t>(4 + 2 * field);
}

// A table with 32-bit fields {id, value}.
flatbuffers::uoffset_t Table(Builder& builder, std::vector<std::pair<int, int32_t>> ints,
                             std::vector<std::pair<int, flatbuffers::uoffset_t>> offsets = {},
                             std::vector<int> flags = {}) {
  const flatbuffers::uoffset_t start = builder.StartTable();
  for (const auto& [id, value] : ints) builder.AddElement<int32_t>(Entry(id), value, 0);
  for (const auto& [id, offset] : offsets) {
    builder.AddOffset(Entry(id), flatbuffers::Offset<void>(offset));
  }
  for (const int id : flags) builder.AddElement<uint8_t>(Entry(id), 1, 0);
  return builder.EndTable(start);
}

std::vector<std::byte> Finish(Builder& builder, flatbuffers::uoffset_t root) {
  builder.Finish(flatbuffers::Offset<void>(root));
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {begin, begin + builder.GetSize()};
}

TEST(CompileSpecWire, FieldNumbersAreThoseOfExecuTorch) {
  Builder builder;
  const auto path = builder.CreateString("libQnnHtp.so").o;
  const auto dir = builder.CreateString("out").o;
  const auto provider = builder.CreateString("provider").o;
  const auto package = Table(builder, {{3, 2}, {6, 1}}, {{2, provider}});
  const auto package_list = builder.CreateVector(std::vector<flatbuffers::Offset<void>>{package}).o;
  const auto packages = Table(builder, {}, {{0, package_list}});
  const auto htp_info = Table(builder, {{0, 81}, {1, 16}});
  const auto lpai_info = Table(builder, {{0, 7}});
  const auto soc = Table(builder, {{0, 72}}, {{1, htp_info}, {2, lpai_info}});
  const auto htp = Table(builder, {{0, 4096}, {1, 8}, {2, 1}, {3, 1}}, {}, {4, 6, 8, 9});
  const auto gpu = Table(builder, {{0, 1}, {1, 3}}, {}, {3, 5});
  const auto lpai = Table(builder, {{0, 60}, {1, 2}, {2, 1}, {3, 1}, {4, 3}, {5, 1}});
  const auto backend = Table(builder, {{0, 2}}, {{1, htp}, {2, gpu}, {3, lpai}});
  const auto root =
      Table(builder, {{3, 5}, {6, 2}},
            {{0, soc}, {1, backend}, {2, path}, {10, dir}, {11, packages}}, {4, 8, 12});
  const Result<CompileSpec> spec = DecodeCompileSpec(Finish(builder, root));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  CompileSpec expected;
  expected.soc_model = 72;
  expected.htp_arch = 81;
  expected.vtcm_size_in_mb = 16;
  expected.lpai_hardware_version = SpecLpaiHardware::kV7;
  expected.backend_type = SpecBackend::kHtp;
  expected.htp = SpecHtpOptions{4096,
                                SpecHtpPerformance::kBalanced,
                                SpecHtpPrecision::kFp16,
                                SpecPdSession::kSigned,
                                true,
                                false,
                                true,
                                false,
                                true,
                                true};
  expected.gpu = SpecGpuOptions{
      SpecGpuPerformance::kNormal, SpecGpuPrecision::kUserProvided, false, true, false, true};
  expected.lpai = SpecLpaiOptions{
      60, 2, SpecLpaiClient::kRealTime, SpecLpaiAffinity::kSoft, 3, SpecLpaiTarget::kArm};
  expected.library_path = "libQnnHtp.so";
  expected.log_level = SpecLogLevel::kDebug;
  expected.online_prepare = true;
  expected.profile_level = SpecProfileLevel::kDetailed;
  expected.is_from_context_binary = true;
  expected.saver_output_dir = "out";
  expected.op_packages.emplace_back();
  expected.op_packages[0].interface_provider = "provider";
  expected.op_packages[0].target = SpecOpPackageTarget::kHtp;
  expected.op_packages[0].platform = SpecOpPackagePlatform::kX86_64;
  expected.use_mha2sha = true;
  EXPECT_EQ(*spec, expected);
}

// Files of an older writer end their tables earlier.
TEST(CompileSpecWire, AbsentFieldsAreDefaults) {
  Builder empty;
  EXPECT_EQ(DecodeCompileSpec(Finish(empty, Table(empty, {}))).value(), CompileSpec());
  Builder builder;
  const auto htp = Table(builder, {{0, 512}}, {}, {8});  // ends before use_slc_allocator
  const auto backend = Table(builder, {{0, 2}}, {{1, htp}});
  const Result<CompileSpec> spec =
      DecodeCompileSpec(Finish(builder, Table(builder, {}, {{1, backend}})));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  CompileSpec expected;
  expected.backend_type = SpecBackend::kHtp;
  expected.htp.emplace().max_sf_buf_size = 512;
  expected.htp->use_weight_sharing = true;
  EXPECT_EQ(*spec, expected);
}

TEST(CompileSpecWire, UnknownValuesNameTheirField) {
  struct Case {
    std::function<std::vector<std::byte>(Builder&)> make;
    const char* field;
    StatusCode code;
  };
  const auto in_root = [](int id, int32_t value) {
    return [id, value](Builder& b) { return Finish(b, Table(b, {{id, value}})); };
  };
  const auto in_htp = [](int id, int32_t value) {
    return [id, value](Builder& b) {
      const auto htp = Table(b, {{id, value}});
      const auto backend = Table(b, {}, {{1, htp}});
      return Finish(b, Table(b, {}, {{1, backend}}));
    };
  };
  const auto in_soc = [](int id, int32_t value) {
    return [id, value](Builder& b) {
      const auto soc = Table(b, {{id, value}});
      return Finish(b, Table(b, {}, {{0, soc}}));
    };
  };
  const Case cases[] = {
      {in_root(3, 6), "log_level is 6", StatusCode::kUnsupported},
      {in_root(6, -1), "profile_level is -1", StatusCode::kUnsupported},
      {in_htp(1, 9), "htp_options.performance_mode is 9", StatusCode::kUnsupported},
      {in_htp(2, 2), "htp_options.precision is 2", StatusCode::kUnsupported},
      {in_htp(3, 7), "htp_options.pd_session is 7", StatusCode::kUnsupported},
      {in_htp(0, -4), "htp_options.max_sf_buf_size is -4", StatusCode::kCorruptData},
      {in_soc(0, -1), "soc_model is -1", StatusCode::kCorruptData},
  };
  for (const Case& one : cases) {
    Builder builder;
    const Status status = DecodeCompileSpec(one.make(builder)).status();
    EXPECT_EQ(status.code(), one.code) << one.field;
    EXPECT_THAT(status.message(), HasSubstr(one.field));
  }
}

// ---- Damage

TEST(CompileSpecDamage, EveryLengthAndManyFlipsAreSafe) {
  const std::vector<std::byte> good = EncodeCompileSpec(Full()).value();
  const auto check = [](std::span<const std::byte> bytes) {
    const Result<CompileSpec> spec = DecodeCompileSpec(bytes);
    if (spec.ok()) {
      // What was read must be writable again.
      EXPECT_TRUE(EncodeCompileSpec(*spec).ok());
      return true;
    }
    EXPECT_TRUE(spec.status().code() == StatusCode::kCorruptData ||
                spec.status().code() == StatusCode::kUnsupported)
        << spec.status().ToString();
    return false;
  };
  size_t refused = 0;
  for (size_t size = 0; size < good.size(); ++size) {
    // An exact copy, so that a sanitizer sees a read behind the end.
    const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    refused += check(cut) ? 0 : 1;
  }
  EXPECT_GT(refused, good.size() / 2);
  std::mt19937 random(11);
  refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    refused += check(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 5000U);
}

// 4,000 entries that all point at one table with long texts.
TEST(CompileSpecDamage, OverlappingTextsDoNotEatMemory) {
  Builder builder;
  const auto text = builder.CreateString(std::string(1 << 20, 'x')).o;
  const auto package = Table(builder, {}, {{0, text}, {1, text}, {2, text}});
  const auto list = builder.CreateVector(std::vector<flatbuffers::Offset<void>>(4000, package)).o;
  const auto packages = Table(builder, {}, {{0, list}});
  const Status status =
      DecodeCompileSpec(Finish(builder, Table(builder, {}, {{11, packages}}))).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("overlaps"));
}

TEST(CompileSpecFile, IsNamedInErrors) {
  EXPECT_EQ(CompileSpecFileName(3), "shard_3.spec");
  const test::TempFolder folder;
  const std::string path = folder.File("shard_0.spec");
  ASSERT_TRUE(WriteFileAtomically(path, "no spec at all, but long enough").ok());
  const Status status = ReadCompileSpec(path).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_EQ(ReadCompileSpec(folder.File("nowhere")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace spillway
