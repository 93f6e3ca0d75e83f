#include "qnn/htp/option_names.h"

#include <fmt/format.h>

#include <span>

namespace spillway::qnn::htp {
namespace {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

// Of each enumeration: what it is called in messages, and its names.
template <typename E>
struct Names;

template <>
struct Names<Precision> {
  static constexpr std::string_view kWhat = "precision";
  static constexpr Named<Precision> kAll[] = {{Precision::kQuantized, "quantized"},
                                              {Precision::kFp16, "fp16"}};
};

template <>
struct Names<PerformanceMode> {
  static constexpr std::string_view kWhat = "performance mode";
  static constexpr Named<PerformanceMode> kAll[] = {
      {PerformanceMode::kDefault, "default"},
      {PerformanceMode::kBurst, "burst"},
      {PerformanceMode::kSustainedHighPerformance, "sustained_high_performance"},
      {PerformanceMode::kHighPerformance, "high_performance"},
      {PerformanceMode::kBalanced, "balanced"},
      {PerformanceMode::kLowBalanced, "low_balanced"},
      {PerformanceMode::kHighPowerSaver, "high_power_saver"},
      {PerformanceMode::kPowerSaver, "power_saver"},
      {PerformanceMode::kLowPowerSaver, "low_power_saver"},
      {PerformanceMode::kExtremePowerSaver, "extreme_power_saver"},
  };
};

template <>
struct Names<PdSession> {
  static constexpr std::string_view kWhat = "PD session";
  static constexpr Named<PdSession> kAll[] = {{PdSession::kUnsigned, "unsigned"},
                                              {PdSession::kSigned, "signed"}};
};

template <>
struct Names<GraphPriority> {
  static constexpr std::string_view kWhat = "graph priority";
  static constexpr Named<GraphPriority> kAll[] = {{GraphPriority::kLow, "low"},
                                                  {GraphPriority::kNormal, "normal"},
                                                  {GraphPriority::kNormalHigh, "normal_high"},
                                                  {GraphPriority::kHigh, "high"}};
};

template <>
struct Names<ProfileLevel> {
  static constexpr std::string_view kWhat = "profile level";
  static constexpr Named<ProfileLevel> kAll[] = {{ProfileLevel::kOff, "off"},
                                                 {ProfileLevel::kBasic, "basic"},
                                                 {ProfileLevel::kDetailed, "detailed"},
                                                 {ProfileLevel::kLinting, "linting"}};
};

template <>
struct Names<SlcAllocator> {
  static constexpr std::string_view kWhat = "SLC allocator setting";
  static constexpr Named<SlcAllocator> kAll[] = {
      {SlcAllocator::kOff, "off"}, {SlcAllocator::kOn, "on"}, {SlcAllocator::kAuto, "auto"}};
};

template <>
struct Names<VendorLogLevel> {
  static constexpr std::string_view kWhat = "vendor log level";
  static constexpr Named<VendorLogLevel> kAll[] = {
      {VendorLogLevel::kAuto, "auto"},       {VendorLogLevel::kError, "error"},
      {VendorLogLevel::kWarning, "warning"}, {VendorLogLevel::kInfo, "info"},
      {VendorLogLevel::kVerbose, "verbose"}, {VendorLogLevel::kDebug, "debug"}};
};

}  // namespace

template <typename E>
std::string_view OptionName(E value) {
  for (const Named<E>& one : Names<E>::kAll) {
    if (one.value == value) return one.name;
  }
  return "unknown";
}

template <typename E>
std::string OptionNames() {
  std::string names;
  for (const Named<E>& one : Names<E>::kAll) {
    names += names.empty() ? "" : ", ";
    names += one.name;
  }
  return names;
}

template <typename E>
Result<E> ParseOption(std::string_view name) {
  for (const Named<E>& one : Names<E>::kAll) {
    if (one.name == name) return one.value;
  }
  return InvalidArgumentError(
      fmt::format("unknown {} '{}', expected one of {}", Names<E>::kWhat, name, OptionNames<E>()));
}

#define SPILLWAY_INSTANTIATE(E)                        \
  template std::string_view OptionName<E>(E);          \
  template Result<E> ParseOption<E>(std::string_view); \
  template std::string OptionNames<E>()

SPILLWAY_INSTANTIATE(Precision);
SPILLWAY_INSTANTIATE(PerformanceMode);
SPILLWAY_INSTANTIATE(PdSession);
SPILLWAY_INSTANTIATE(GraphPriority);
SPILLWAY_INSTANTIATE(ProfileLevel);
SPILLWAY_INSTANTIATE(SlcAllocator);
SPILLWAY_INSTANTIATE(VendorLogLevel);

#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::qnn::htp
