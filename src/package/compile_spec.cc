#include "package/compile_spec.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/file.h"
#include "package/compile_spec_generated.h"

namespace spillway {
namespace {

namespace wire = fb::spec;

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostOpPackages = 4096;
constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 100'000;
constexpr uint64_t kMostSpillFill = std::numeric_limits<int32_t>::max();

// ---- Values and their names

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

constexpr Named<SpecLpaiHardware> kLpaiHardware[] = {{SpecLpaiHardware::kNone, "none"},
                                                     {SpecLpaiHardware::kV6, "v6"},
                                                     {SpecLpaiHardware::kV7, "v7"}};
constexpr Named<SpecGpuPerformance> kGpuPerformance[] = {{SpecGpuPerformance::kHigh, "high"},
                                                         {SpecGpuPerformance::kNormal, "normal"},
                                                         {SpecGpuPerformance::kLow, "low"}};
constexpr Named<SpecGpuPrecision> kGpuPrecision[] = {
    {SpecGpuPrecision::kFp32, "fp32"},
    {SpecGpuPrecision::kFp16, "fp16"},
    {SpecGpuPrecision::kHybrid, "hybrid"},
    {SpecGpuPrecision::kUserProvided, "user_provided"}};
constexpr Named<SpecHtpPerformance> kHtpPerformance[] = {
    {SpecHtpPerformance::kDefault, "default"},
    {SpecHtpPerformance::kSustainedHigh, "sustained_high_performance"},
    {SpecHtpPerformance::kBurst, "burst"},
    {SpecHtpPerformance::kHigh, "high_performance"},
    {SpecHtpPerformance::kPowerSaver, "power_saver"},
    {SpecHtpPerformance::kLowPowerSaver, "low_power_saver"},
    {SpecHtpPerformance::kHighPowerSaver, "high_power_saver"},
    {SpecHtpPerformance::kLowBalanced, "low_balanced"},
    {SpecHtpPerformance::kBalanced, "balanced"}};
constexpr Named<SpecHtpPrecision> kHtpPrecision[] = {{SpecHtpPrecision::kQuantized, "quantized"},
                                                     {SpecHtpPrecision::kFp16, "fp16"}};
constexpr Named<SpecPdSession> kPdSession[] = {{SpecPdSession::kUnsigned, "unsigned"},
                                               {SpecPdSession::kSigned, "signed"}};
constexpr Named<SpecBackend> kBackend[] = {{SpecBackend::kUndefined, "undefined"},
                                           {SpecBackend::kGpu, "gpu"},
                                           {SpecBackend::kHtp, "htp"},
                                           {SpecBackend::kDsp, "dsp"},
                                           {SpecBackend::kLpai, "lpai"}};
constexpr Named<SpecLpaiClient> kLpaiClient[] = {{SpecLpaiClient::kUndefined, "undefined"},
                                                 {SpecLpaiClient::kRealTime, "real_time"},
                                                 {SpecLpaiClient::kNonRealTime, "non_real_time"}};
constexpr Named<SpecLpaiAffinity> kLpaiAffinity[] = {{SpecLpaiAffinity::kUndefined, "undefined"},
                                                     {SpecLpaiAffinity::kSoft, "soft"},
                                                     {SpecLpaiAffinity::kHard, "hard"}};
constexpr Named<SpecLpaiTarget> kLpaiTarget[] = {
    {SpecLpaiTarget::kX86, "x86"}, {SpecLpaiTarget::kArm, "arm"}, {SpecLpaiTarget::kAdsp, "adsp"}};
constexpr Named<SpecLogLevel> kLogLevel[] = {
    {SpecLogLevel::kOff, "off"},         {SpecLogLevel::kError, "error"},
    {SpecLogLevel::kWarn, "warn"},       {SpecLogLevel::kInfo, "info"},
    {SpecLogLevel::kVerbose, "verbose"}, {SpecLogLevel::kDebug, "debug"}};
constexpr Named<SpecProfileLevel> kProfileLevel[] = {{SpecProfileLevel::kOff, "off"},
                                                     {SpecProfileLevel::kBasic, "basic"},
                                                     {SpecProfileLevel::kDetailed, "detailed"},
                                                     {SpecProfileLevel::kOptrace, "optrace"}};
constexpr Named<SpecOpPackageTarget> kOpPackageTarget[] = {
    {SpecOpPackageTarget::kUnknown, "unknown"},
    {SpecOpPackageTarget::kCpu, "cpu"},
    {SpecOpPackageTarget::kHtp, "htp"}};
constexpr Named<SpecOpPackagePlatform> kOpPackagePlatform[] = {
    {SpecOpPackagePlatform::kUnknown, "unknown"},
    {SpecOpPackagePlatform::kX86_64, "x86_64"},
    {SpecOpPackagePlatform::kAarch64Android, "aarch64_android"}};

template <typename E, size_t kCount>
std::string_view NameIn(const Named<E> (&names)[kCount], E value) {
  for (const Named<E>& one : names) {
    if (one.value == value) return one.name;
  }
  return {};
}

}  // namespace

std::string_view SpecValueName(SpecLpaiHardware value) { return NameIn(kLpaiHardware, value); }
std::string_view SpecValueName(SpecGpuPerformance value) { return NameIn(kGpuPerformance, value); }
std::string_view SpecValueName(SpecGpuPrecision value) { return NameIn(kGpuPrecision, value); }
std::string_view SpecValueName(SpecHtpPerformance value) { return NameIn(kHtpPerformance, value); }
std::string_view SpecValueName(SpecHtpPrecision value) { return NameIn(kHtpPrecision, value); }
std::string_view SpecValueName(SpecPdSession value) { return NameIn(kPdSession, value); }
std::string_view SpecValueName(SpecBackend value) { return NameIn(kBackend, value); }
std::string_view SpecValueName(SpecLpaiClient value) { return NameIn(kLpaiClient, value); }
std::string_view SpecValueName(SpecLpaiAffinity value) { return NameIn(kLpaiAffinity, value); }
std::string_view SpecValueName(SpecLpaiTarget value) { return NameIn(kLpaiTarget, value); }
std::string_view SpecValueName(SpecLogLevel value) { return NameIn(kLogLevel, value); }
std::string_view SpecValueName(SpecProfileLevel value) { return NameIn(kProfileLevel, value); }
std::string_view SpecValueName(SpecOpPackageTarget value) {
  return NameIn(kOpPackageTarget, value);
}
std::string_view SpecValueName(SpecOpPackagePlatform value) {
  return NameIn(kOpPackagePlatform, value);
}

namespace {

// ---- Writing

// The first value that the file cannot hold stays in status().
class Writer {
 public:
  Result<std::vector<std::byte>> Write(const CompileSpec& spec);

 private:
  template <typename E>
  int32_t Choice(E value, const char* field) {
    if (SpecValueName(value).empty() && status_.ok()) {
      status_ = InvalidArgumentError(
          fmt::format("compile spec: {} is {}, which is no value of this field", field,
                      static_cast<int32_t>(value)));
    }
    return static_cast<int32_t>(value);
  }
  int32_t Signed(uint64_t value, const char* field) {
    if (value > kMostSpillFill && status_.ok()) {
      status_ = InvalidArgumentError(
          fmt::format("compile spec: {} is {}, but the file's 32-bit field holds at most {}", field,
                      value, kMostSpillFill));
    }
    return static_cast<int32_t>(value);
  }
  // Absent when empty.
  flatbuffers::Offset<flatbuffers::String> Text(const std::string& text) {
    return text.empty() ? 0 : builder_.CreateString(text);
  }
  flatbuffers::Offset<wire::Soc> Soc(const CompileSpec& spec);
  flatbuffers::Offset<wire::HtpOptions> Htp(const SpecHtpOptions& htp);
  flatbuffers::Offset<wire::GpuOptions> Gpu(const SpecGpuOptions& gpu);
  flatbuffers::Offset<wire::LpaiOptions> Lpai(const SpecLpaiOptions& lpai);
  flatbuffers::Offset<wire::OpPackages> OpPackages(const std::vector<SpecOpPackage>& packages);

  flatbuffers::FlatBufferBuilder builder_;
  Status status_;
};

flatbuffers::Offset<wire::Soc> Writer::Soc(const CompileSpec& spec) {
  const auto htp =
      wire::CreateHtp(builder_, Signed(spec.htp_arch, "htp_arch"), spec.vtcm_size_in_mb);
  flatbuffers::Offset<wire::Lpai> lpai = 0;
  if (spec.lpai_hardware_version != SpecLpaiHardware::kNone) {
    lpai = wire::CreateLpai(builder_, Choice(spec.lpai_hardware_version, "lpai_hardware_version"));
  }
  return wire::CreateSoc(builder_, Signed(spec.soc_model, "soc_model"), htp, lpai);
}

flatbuffers::Offset<wire::HtpOptions> Writer::Htp(const SpecHtpOptions& htp) {
  return wire::CreateHtpOptions(
      builder_, Signed(htp.max_sf_buf_size, "htp_options.max_sf_buf_size"),
      Choice(htp.performance_mode, "htp_options.performance_mode"),
      Choice(htp.precision, "htp_options.precision"),
      Choice(htp.pd_session, "htp_options.pd_session"), htp.use_conv_hmx, htp.use_dlbc,
      htp.use_fold_relu, htp.use_multi_contexts, htp.use_weight_sharing, htp.use_slc_allocator);
}

flatbuffers::Offset<wire::GpuOptions> Writer::Gpu(const SpecGpuOptions& gpu) {
  return wire::CreateGpuOptions(
      builder_, Choice(gpu.performance_mode, "gpu_options.performance_mode"),
      Choice(gpu.precision, "gpu_options.precision"), gpu.use_memory_optimizations,
      gpu.use_node_optimizations, gpu.use_queue_recording, gpu.use_weight_sharing);
}

flatbuffers::Offset<wire::LpaiOptions> Writer::Lpai(const SpecLpaiOptions& lpai) {
  return wire::CreateLpaiOptions(builder_, lpai.fps, lpai.ftrt_ratio,
                                 Choice(lpai.client_perf_type, "lpai_options.client_perf_type"),
                                 Choice(lpai.affinity, "lpai_options.affinity"),
                                 lpai.core_selection,
                                 Choice(lpai.target_env, "lpai_options.target_env"));
}

flatbuffers::Offset<wire::OpPackages> Writer::OpPackages(
    const std::vector<SpecOpPackage>& packages) {
  if (packages.empty()) return 0;
  std::vector<flatbuffers::Offset<wire::OpPackage>> offsets;
  for (const SpecOpPackage& one : packages) {
    const auto name = Text(one.op_package_name);
    const auto path = Text(one.op_package_path);
    const auto provider = Text(one.interface_provider);
    const auto custom_op = Text(one.custom_op_name);
    const auto op_type = Text(one.qnn_op_type_name);
    offsets.push_back(wire::CreateOpPackage(
        builder_, name, path, provider, Choice(one.target, "op_package_infos.target"), custom_op,
        op_type, Choice(one.platform, "op_package_infos.platform")));
  }
  return wire::CreateOpPackages(builder_, builder_.CreateVector(offsets));
}

Result<std::vector<std::byte>> Writer::Write(const CompileSpec& spec) {
  if (spec.op_packages.size() > kMostOpPackages) {
    return InvalidArgumentError(
        fmt::format("compile spec: {} op packages, at most {} can be stored",
                    spec.op_packages.size(), kMostOpPackages));
  }
  const auto soc = Soc(spec);
  const auto htp = spec.htp ? Htp(*spec.htp) : 0;
  const auto gpu = spec.gpu ? Gpu(*spec.gpu) : 0;
  const auto lpai = spec.lpai ? Lpai(*spec.lpai) : 0;
  const auto backend =
      wire::CreateBackend(builder_, Choice(spec.backend_type, "backend_type"), htp, gpu, lpai);
  const auto library_path = Text(spec.library_path);
  const auto saver_dir = Text(spec.saver_output_dir);
  const auto packages = OpPackages(spec.op_packages);
  builder_.Finish(wire::CreateOptions(
      builder_, soc, backend, library_path, Choice(spec.log_level, "log_level"),
      spec.online_prepare, spec.dump_intermediate_outputs,
      Choice(spec.profile_level, "profile_level"), spec.shared_buffer, spec.is_from_context_binary,
      spec.saver, saver_dir, packages, spec.use_mha2sha));
  if (!status_.ok()) return status_;
  if (builder_.GetSize() > kMostBytes) {
    return InvalidArgumentError(fmt::format("compile spec: {} bytes, more than the {} of a file",
                                            builder_.GetSize(), kMostBytes));
  }
  const auto* begin = reinterpret_cast<const std::byte*>(builder_.GetBufferPointer());
  return std::vector<std::byte>(begin, begin + builder_.GetSize());
}

// ---- Reading

class Reader {
 public:
  explicit Reader(size_t file_bytes) : budget_(file_bytes) {}
  Status Read(const wire::Options& options, CompileSpec& spec);

 private:
  template <typename E>
  Status Choice(int32_t stored, const char* field, E& value) {
    value = static_cast<E>(stored);
    if (!SpecValueName(value).empty()) return OkStatus();
    return UnsupportedError(fmt::format(
        "compile spec: {} is {}, which is no known value of this field", field, stored));
  }
  template <typename T>
  Status NotNegative(int32_t stored, const char* field, T& value) {
    if (stored < 0) {
      return CorruptDataError(
          fmt::format("compile spec: {} is {}, expected 0 or more", field, stored));
    }
    value = static_cast<T>(stored);
    return OkStatus();
  }
  // Damage can make many fields share one long text; the copies of a sound file
  // are never more bytes than the file.
  Status Text(const flatbuffers::String* stored, const char* field, std::string& text) {
    if (stored == nullptr) return OkStatus();
    if (stored->size() > budget_) {
      return CorruptDataError(fmt::format("compile spec: {} overlaps other parts", field));
    }
    budget_ -= stored->size();
    text.assign(stored->data(), stored->size());
    return OkStatus();
  }
  Status Soc(const wire::Soc* stored, CompileSpec& spec);
  Status Backend(const wire::Backend* stored, CompileSpec& spec);
  Status Htp(const wire::HtpOptions& stored, SpecHtpOptions& htp);
  Status Gpu(const wire::GpuOptions& stored, SpecGpuOptions& gpu);
  Status Lpai(const wire::LpaiOptions& stored, SpecLpaiOptions& lpai);
  Status OpPackage(const wire::OpPackage& stored, SpecOpPackage& package);
  Status OpPackages(const wire::OpPackages* stored, CompileSpec& spec);

  uint64_t budget_;
};

Status Reader::Soc(const wire::Soc* stored, CompileSpec& spec) {
  if (stored == nullptr) return OkStatus();
  SPILLWAY_RETURN_IF_ERROR(NotNegative(stored->model(), "soc_model", spec.soc_model));
  if (stored->htp() != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(NotNegative(stored->htp()->arch(), "htp_arch", spec.htp_arch));
    spec.vtcm_size_in_mb = stored->htp()->vtcm_mb();
  }
  if (stored->lpai() == nullptr) return OkStatus();
  return Choice(stored->lpai()->hardware_version(), "lpai_hardware_version",
                spec.lpai_hardware_version);
}

Status Reader::Htp(const wire::HtpOptions& stored, SpecHtpOptions& htp) {
  SPILLWAY_RETURN_IF_ERROR(
      NotNegative(stored.max_sf_buf_size(), "htp_options.max_sf_buf_size", htp.max_sf_buf_size));
  SPILLWAY_RETURN_IF_ERROR(
      Choice(stored.performance_mode(), "htp_options.performance_mode", htp.performance_mode));
  SPILLWAY_RETURN_IF_ERROR(Choice(stored.precision(), "htp_options.precision", htp.precision));
  SPILLWAY_RETURN_IF_ERROR(Choice(stored.pd_session(), "htp_options.pd_session", htp.pd_session));
  htp.use_conv_hmx = stored.use_conv_hmx();
  htp.use_dlbc = stored.use_dlbc();
  htp.use_fold_relu = stored.use_fold_relu();
  htp.use_multi_contexts = stored.use_multi_contexts();
  htp.use_weight_sharing = stored.use_weight_sharing();
  htp.use_slc_allocator = stored.use_slc_allocator();
  return OkStatus();
}

Status Reader::Gpu(const wire::GpuOptions& stored, SpecGpuOptions& gpu) {
  SPILLWAY_RETURN_IF_ERROR(
      Choice(stored.performance_mode(), "gpu_options.performance_mode", gpu.performance_mode));
  SPILLWAY_RETURN_IF_ERROR(Choice(stored.precision(), "gpu_options.precision", gpu.precision));
  gpu.use_memory_optimizations = stored.use_memory_optimizations();
  gpu.use_node_optimizations = stored.use_node_optimizations();
  gpu.use_queue_recording = stored.use_queue_recording();
  gpu.use_weight_sharing = stored.use_weight_sharing();
  return OkStatus();
}

Status Reader::Lpai(const wire::LpaiOptions& stored, SpecLpaiOptions& lpai) {
  lpai.fps = stored.fps();
  lpai.ftrt_ratio = stored.ftrt_ratio();
  lpai.core_selection = stored.core_selection();
  SPILLWAY_RETURN_IF_ERROR(
      Choice(stored.client_perf_type(), "lpai_options.client_perf_type", lpai.client_perf_type));
  SPILLWAY_RETURN_IF_ERROR(Choice(stored.affinity(), "lpai_options.affinity", lpai.affinity));
  return Choice(stored.target_env(), "lpai_options.target_env", lpai.target_env);
}

Status Reader::Backend(const wire::Backend* stored, CompileSpec& spec) {
  if (stored == nullptr) return OkStatus();
  SPILLWAY_RETURN_IF_ERROR(Choice(stored->type(), "backend_type", spec.backend_type));
  if (stored->htp() != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(Htp(*stored->htp(), spec.htp.emplace()));
  }
  if (stored->gpu() != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(Gpu(*stored->gpu(), spec.gpu.emplace()));
  }
  if (stored->lpai() != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(Lpai(*stored->lpai(), spec.lpai.emplace()));
  }
  return OkStatus();
}

Status Reader::OpPackage(const wire::OpPackage& stored, SpecOpPackage& package) {
  SPILLWAY_RETURN_IF_ERROR(
      Text(stored.name(), "op_package_infos.op_package_name", package.op_package_name));
  SPILLWAY_RETURN_IF_ERROR(
      Text(stored.path(), "op_package_infos.op_package_path", package.op_package_path));
  SPILLWAY_RETURN_IF_ERROR(Text(stored.interface_provider(), "op_package_infos.interface_provider",
                                package.interface_provider));
  SPILLWAY_RETURN_IF_ERROR(
      Text(stored.custom_op_name(), "op_package_infos.custom_op_name", package.custom_op_name));
  SPILLWAY_RETURN_IF_ERROR(Text(stored.qnn_op_type_name(), "op_package_infos.qnn_op_type_name",
                                package.qnn_op_type_name));
  SPILLWAY_RETURN_IF_ERROR(Choice(stored.target(), "op_package_infos.target", package.target));
  return Choice(stored.platform(), "op_package_infos.platform", package.platform);
}

Status Reader::OpPackages(const wire::OpPackages* stored, CompileSpec& spec) {
  if (stored == nullptr || stored->packages() == nullptr) return OkStatus();
  if (stored->packages()->size() > kMostOpPackages) {
    return CorruptDataError(fmt::format("compile spec: {} entries of op_package_infos, at most {}",
                                        stored->packages()->size(), kMostOpPackages));
  }
  for (const wire::OpPackage* one : *stored->packages()) {
    SPILLWAY_RETURN_IF_ERROR(OpPackage(*one, spec.op_packages.emplace_back()));
  }
  return OkStatus();
}

Status Reader::Read(const wire::Options& options, CompileSpec& spec) {
  SPILLWAY_RETURN_IF_ERROR(Soc(options.soc(), spec));
  SPILLWAY_RETURN_IF_ERROR(Backend(options.backend(), spec));
  SPILLWAY_RETURN_IF_ERROR(Text(options.library_path(), "library_path", spec.library_path));
  SPILLWAY_RETURN_IF_ERROR(Choice(options.log_level(), "log_level", spec.log_level));
  spec.online_prepare = options.online_prepare();
  spec.dump_intermediate_outputs = options.dump_intermediate_outputs();
  SPILLWAY_RETURN_IF_ERROR(Choice(options.profile_level(), "profile_level", spec.profile_level));
  spec.shared_buffer = options.shared_buffer();
  spec.is_from_context_binary = options.is_from_context_binary();
  spec.saver = options.saver();
  SPILLWAY_RETURN_IF_ERROR(
      Text(options.saver_output_dir(), "saver_output_dir", spec.saver_output_dir));
  SPILLWAY_RETURN_IF_ERROR(OpPackages(options.op_packages(), spec));
  spec.use_mha2sha = options.use_mha2sha();
  return OkStatus();
}

}  // namespace

std::string CompileSpecFileName(uint32_t shard) {
  return fmt::format("shard_{}{}", shard, kCompileSpecSuffix);
}

Result<std::vector<std::byte>> EncodeCompileSpec(const CompileSpec& spec) {
  return Writer().Write(spec);
}

Result<CompileSpec> DecodeCompileSpec(std::span<const std::byte> bytes) {
  if (bytes.size() > kMostBytes) {
    return CorruptDataError(fmt::format("compile spec: {} bytes, more than the {} of a spec",
                                        bytes.size(), kMostBytes));
  }
  // The verifier wants the alignment that a file's bytes inside another file may lack.
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  const auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, bytes.size(), kMaxDepth, kMaxTables);
  if (bytes.size() < 8 || !wire::VerifyOptionsBuffer(verifier)) {
    return CorruptDataError(
        fmt::format("compile spec: the structure of the {} bytes is damaged, or they are no "
                    "compile spec",
                    bytes.size()));
  }
  CompileSpec spec;
  SPILLWAY_RETURN_IF_ERROR(Reader(bytes.size()).Read(*wire::GetOptions(data), spec));
  return spec;
}

Result<CompileSpec> ReadCompileSpec(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Result<CompileSpec> spec = DecodeCompileSpec(file.bytes());
  if (!spec.ok()) return spec.status().WithContext(path);
  return spec;
}

}  // namespace spillway
