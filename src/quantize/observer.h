// Observers: choose the range of a tensor from the values that calibration sees.

#ifndef SPILLWAY_QUANTIZE_OBSERVER_H_
#define SPILLWAY_QUANTIZE_OBSERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quantize/recipe.h"

namespace spillway {

struct Range {
  float min = 0.0f, max = 0.0f;
  void Include(float value_min, float value_max);
};

// Values counted in 2048 bins of one width, 1024 on each side of zero. The width is
// the smallest power of two with which all values so far fit, so the same values
// give the same histogram in whatever order they come. Zeros are counted apart:
// every encoding holds them exactly.
class Histogram {
 public:
  static constexpr int kSide = 1024;

  // Finite values only.
  void Add(std::span<const float> values);

  double width() const { return width_; }
  // Bin i holds [(i - kSide) * width, (i - kSide + 1) * width).
  uint64_t count(int bin) const { return counts_[static_cast<size_t>(bin)]; }
  double centre(int bin) const { return (bin - kSide + 0.5) * width_; }
  uint64_t zeros() const { return zeros_; }
  uint64_t total() const { return total_; }  // zeros included

 private:
  void Widen();

  std::array<uint64_t, 2 * kSide> counts_{};
  double width_ = 0.0;  // 0: nothing but zeros so far
  uint64_t zeros_ = 0, total_ = 0;
};

// One tensor's. Not thread-safe; of fixed size.
class Observer {
 public:
  virtual ~Observer() = default;
  // The tensor's values in one window, all finite. `seen` is their minimum and
  // maximum, zero included.
  virtual void Add(std::span<const float> values, const Range& seen) = 0;
  // The range to encode; it holds zero and lies within what was seen.
  virtual Range Choose() const = 0;
};

// `scheme` says what the range is chosen for: how many steps it gets, and whether
// both sides are the same. With kU16 the entropy observer is min-max: 65,536 steps
// are finer than any histogram.
std::unique_ptr<Observer> MakeObserver(const ObserverSpec& spec, const ActivationScheme& scheme);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_OBSERVER_H_
