#include "quantize/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "host/executor.h"
#include "quantize/window_runner.h"

namespace spillway {
namespace {

// Minimum and maximum of f32 values; false when one is not finite.
bool MinMax(std::span<const std::byte> bytes, Range& range) {
  const size_t count = bytes.size() / sizeof(float);
  float low = 0.0f, high = 0.0f;
  uint32_t largest = 0;  // magnitude bits; infinity and NaN are the largest
  for (size_t i = 0; i < count; ++i) {
    float value;
    uint32_t bits;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    low = value < low ? value : low;
    high = value > high ? value : high;
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  range = {low, high};
  return largest < 0x7f800000u;
}

// The cache holds the prefix, so its encodings must, too.
void IncludePrefix(const FloatPrefix& prefix, TensorRanges& ranges) {
  const auto include = [&](size_t layer, std::string_view part, const std::vector<float>& values) {
    Range& range = ranges[fmt::format("layers.{}.{}.cached", layer, part)];
    for (const float value : values) range.Include(value, value);
  };
  for (size_t layer = 0; layer < prefix.k.size(); ++layer) {
    include(layer, "k", prefix.k[layer]);
    include(layer, "v", prefix.v[layer]);
  }
}

Status NotFinite(const std::string& tensor) {
  return CorruptDataError(fmt::format(
      "calibration: tensor {} has a value that is not finite; the model's weights are damaged or "
      "its architecture is not what the file says",
      tensor));
}

// What a tensor's range is chosen for.
ActivationScheme SchemeOf(const Recipe& recipe, const std::string& tensor) {
  if (tensor.ends_with(".cached")) return {recipe.kv, true};
  return recipe.ActivationOf(tensor);
}

}  // namespace

float RoundRangeUp(float limit) {
  if (limit == 0.0f) return 0.0f;
  int exponent;
  const float fraction = std::frexp(limit, &exponent);  // 0.5..1, signed
  const float scaled = std::ldexp(fraction, kRangeBits);
  return std::ldexp(scaled < 0.0f ? std::floor(scaled) : std::ceil(scaled), exponent - kRangeBits);
}

Result<TensorRanges> Calibrate(Decoder& decoder, const TokenWindows& windows,
                               const FloatPrefix& prefix, const Recipe& recipe, ThreadPool* pool,
                               Progress* progress) {
  const TokenWindows order = WindowsAfterPrefix(windows, prefix);

  std::map<std::string, std::unique_ptr<Observer>> observers;
  Status bad;
  const host::TensorObserver observe = [&](const Op& op, const Tensor& tensor,
                                           std::span<const std::byte> values) {
    if (KeepsEncoding(op.type)) return;
    Range seen;
    if (!MinMax(values, seen)) {
      if (bad.ok()) bad = NotFinite(tensor.name);
      return;
    }
    std::unique_ptr<Observer>& observer = observers[tensor.name];
    if (observer == nullptr) {
      observer = MakeObserver(recipe.ObserverOf(tensor.name), SchemeOf(recipe, tensor.name));
    }
    observer->Add({reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)},
                  seen);
  };

  std::unique_ptr<WindowRunner> runner;
  size_t length = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    ReportProgress(progress, "calibrate",
                   static_cast<double>(i) / static_cast<double>(order.size()));
    if (order[i].size() != length) {
      length = order[i].size();
      SPILLWAY_ASSIGN_OR_RETURN(
          runner, WindowRunner::Create(decoder, static_cast<uint32_t>(length), &prefix, pool));
    }
    SPILLWAY_RETURN_IF_ERROR(runner->Run(order[i], observe).WithContext("calibration"));
    SPILLWAY_RETURN_IF_ERROR(bad);
  }
  ReportProgress(progress, "calibrate", 1.0);
  TensorRanges ranges;
  for (const auto& [name, observer] : observers) ranges[name] = observer->Choose();
  IncludePrefix(prefix, ranges);
  for (auto& [name, range] : ranges) {
    range = {RoundRangeUp(range.min), RoundRangeUp(range.max)};
  }
  return ranges;
}

Result<TensorRanges> Calibrate(Decoder& decoder, const TokenWindows& windows,
                               const FloatPrefix& prefix, ThreadPool* pool, Progress* progress) {
  return Calibrate(decoder, windows, prefix, Recipe{}, pool, progress);
}

}  // namespace spillway
