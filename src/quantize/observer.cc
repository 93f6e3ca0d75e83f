#include "quantize/observer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace spillway {
namespace {

constexpr int kBins = 2 * Histogram::kSide;

class MinMaxObserver : public Observer {
 public:
  void Add(std::span<const float> /*values*/, const Range& seen) override {
    range_.Include(seen.min, seen.max);
  }
  Range Choose() const override { return range_; }

 private:
  Range range_;
};

class MovingAverageObserver : public Observer {
 public:
  explicit MovingAverageObserver(float momentum) : momentum_(momentum) {}
  void Add(std::span<const float> /*values*/, const Range& seen) override {
    const float weight = first_ ? 1.0f : momentum_;
    first_ = false;
    range_.min += weight * (seen.min - range_.min);
    range_.max += weight * (seen.max - range_.max);
  }
  Range Choose() const override { return range_; }

 private:
  float momentum_;
  bool first_ = true;
  Range range_;
};

// What the histogram's observers share.
class HistogramObserver : public Observer {
 public:
  void Add(std::span<const float> values, const Range& seen) override {
    seen_.Include(seen.min, seen.max);
    histogram_.Add(values);
  }
  Range Choose() const override {
    if (histogram_.width() == 0.0) return seen_;
    const Range range = ChooseFrom(histogram_);
    return {std::clamp(range.min, seen_.min, 0.0f), std::clamp(range.max, 0.0f, seen_.max)};
  }

 protected:
  virtual Range ChooseFrom(const Histogram& histogram) const = 0;

 private:
  Histogram histogram_;
  Range seen_;
};

class PercentileObserver : public HistogramObserver {
 public:
  explicit PercentileObserver(float percentile)
      : outside_((1.0 - static_cast<double>(percentile) / 100.0) / 2.0) {}

 protected:
  Range ChooseFrom(const Histogram& histogram) const override {
    const double cut = outside_ * static_cast<double>(histogram.total());
    return {static_cast<float>(Limit(histogram, 0, 1, cut)),
            static_cast<float>(Limit(histogram, kBins - 1, -1, cut))};
  }

 private:
  // Where `cut` values lie outside, coming from bin `begin`; values are spread evenly
  // over their bin.
  static double Limit(const Histogram& histogram, int begin, int step, double cut) {
    double outside = 0.0;
    for (int bin = begin; bin >= 0 && bin < kBins; bin += step) {
      const auto count = static_cast<double>(histogram.count(bin));
      if (count > 0.0 && outside + count > cut) {
        const double part = (cut - outside) / count;
        return histogram.centre(bin) + step * (part - 0.5) * histogram.width();
      }
      outside += count;
      // Everything on this side was cut.
      if (step * (bin + (step > 0 ? 1 : 0) - Histogram::kSide) >= 0) return 0.0;
    }
    return 0.0;
  }

  double outside_;
};

// Inside the range a value is off by an even spread over one step, outside by its
// distance from the limit; zeros are exact.
class MseObserver : public HistogramObserver {
 public:
  explicit MseObserver(const ActivationScheme& scheme)
      : steps_(static_cast<double>(DTypeMax(scheme.dtype))), symmetric_(scheme.symmetric) {}

 protected:
  Range ChooseFrom(const Histogram& histogram) const override {
    const Costs costs(histogram);
    // Limits in bins from zero. Each side in turn, until neither moves: the sum is
    // convex in both.
    int low = Histogram::kSide, high = Histogram::kSide;
    if (symmetric_) {
      low = Best([&](int n) { return costs.Total(n, n, steps_); });
      high = low;
    } else {
      for (int turn = 0; turn < 16; ++turn) {
        const int before_low = low, before_high = high;
        low = Best([&](int n) { return costs.Total(n, high, steps_); });
        high = Best([&](int n) { return costs.Total(low, n, steps_); });
        if (low == before_low && high == before_high) break;
      }
    }
    return {static_cast<float>(-low * histogram.width()),
            static_cast<float>(high * histogram.width())};
  }

 private:
  class Costs {
   public:
    explicit Costs(const Histogram& histogram)
        : below_(Histogram::kSide + 1), above_(Histogram::kSide + 1) {
      for (int n = 0; n <= Histogram::kSide; ++n) {
        for (int bin = 0; bin < Histogram::kSide - n; ++bin) {
          below_[static_cast<size_t>(n)] += Clipped(histogram, bin, -n * histogram.width());
          above_[static_cast<size_t>(n)] +=
              Clipped(histogram, kBins - 1 - bin, n * histogram.width());
        }
      }
      rounded_ = static_cast<double>(histogram.total() - histogram.zeros());
      width_ = histogram.width();
    }
    double Total(int low, int high, double steps) const {
      const double step = (low + high) * width_ / steps;
      return rounded_ * step * step / 12.0 + below_[static_cast<size_t>(low)] +
             above_[static_cast<size_t>(high)];
    }

   private:
    static double Clipped(const Histogram& histogram, int bin, double limit) {
      const double distance = histogram.centre(bin) - limit;
      return static_cast<double>(histogram.count(bin)) * distance * distance;
    }
    std::vector<double> below_, above_;  // by the limit in bins
    double rounded_ = 0.0, width_ = 0.0;
  };

  // The least cost; of equal ones the widest range.
  template <typename Cost>
  static int Best(const Cost& cost) {
    int best = Histogram::kSide;
    double least = std::numeric_limits<double>::infinity();
    for (int n = Histogram::kSide; n >= 0; --n) {
      const double found = cost(n);
      if (found < least) {
        least = found;
        best = n;
      }
    }
    return best;
  }

  double steps_;
  bool symmetric_;
};

// For each limit T: how much is lost (Kullback-Leibler divergence) when the values
// of [-T, T], with what lies outside at its ends, are told by so many levels only.
class EntropyObserver : public HistogramObserver {
 protected:
  static constexpr int kLevels = 256;
  static constexpr int kStride = 8;  // bins between the limits that are tried

  Range ChooseFrom(const Histogram& histogram) const override {
    int low = 0, high = 0;  // the outermost bins in use, counted from zero
    for (int n = 1; n <= Histogram::kSide; ++n) {
      if (histogram.count(Histogram::kSide - n) > 0) low = n;
      if (histogram.count(Histogram::kSide + n - 1) > 0) high = n;
    }
    int best = std::max(low, high);
    double least = std::numeric_limits<double>::infinity();
    for (int limit = best; limit >= kLevels / 2; limit -= kStride) {
      const double found = Divergence(histogram, std::min(low, limit), std::min(high, limit));
      if (found < least) {
        least = found;
        best = limit;
      }
    }
    return {static_cast<float>(-std::min(low, best) * histogram.width()),
            static_cast<float>(std::min(high, best) * histogram.width())};
  }

 private:
  static double Divergence(const Histogram& histogram, int low, int high) {
    const int begin = Histogram::kSide - low;
    const int end = Histogram::kSide + high;
    const int bins = end - begin;
    std::vector<double> kept(static_cast<size_t>(bins)), clipped;
    for (int i = 0; i < bins; ++i) {
      kept[static_cast<size_t>(i)] = static_cast<double>(histogram.count(begin + i));
    }
    clipped = kept;
    for (int bin = 0; bin < begin; ++bin) {
      clipped.front() += static_cast<double>(histogram.count(bin));
    }
    for (int bin = end; bin < kBins; ++bin) {
      clipped.back() += static_cast<double>(histogram.count(bin));
    }
    const std::vector<double> told = ToLevels(kept);
    double clipped_sum = 0.0, told_sum = 0.0;
    for (size_t i = 0; i < told.size(); ++i) {
      clipped_sum += clipped[i];
      told_sum += told[i];
    }
    double divergence = 0.0;
    for (size_t i = 0; i < told.size(); ++i) {
      if (clipped[i] == 0.0) continue;
      // What the levels cannot tell at all counts as one value.
      const double q = std::max(told[i], 1.0) / std::max(told_sum, 1.0);
      const double p = clipped[i] / clipped_sum;
      divergence += p * std::log(p / q);
    }
    return divergence;
  }

  // Each level's sum, spread evenly over those of its bins that are in use.
  static std::vector<double> ToLevels(const std::vector<double>& counts) {
    const size_t bins = counts.size();
    const size_t levels = std::min<size_t>(kLevels, bins);
    std::vector<double> told(bins);
    for (size_t level = 0; level < levels; ++level) {
      const size_t begin = level * bins / levels;
      const size_t end = (level + 1) * bins / levels;
      double sum = 0.0, used = 0.0;
      for (size_t i = begin; i < end; ++i) {
        sum += counts[i];
        used += counts[i] > 0.0 ? 1.0 : 0.0;
      }
      for (size_t i = begin; i < end; ++i) told[i] = counts[i] > 0.0 ? sum / used : 0.0;
    }
    return told;
  }
};

}  // namespace

void Range::Include(float value_min, float value_max) {
  min = std::min(min, value_min);
  max = std::max(max, value_max);
}

void Histogram::Add(std::span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  total_ += values.size();
  if (largest > 0.0f) {
    // The largest must lie below kSide * width, as the last bin is half open.
    if (width_ == 0.0) {
      int exponent;
      std::frexp(largest, &exponent);
      width_ = std::ldexp(1.0, exponent) / kSide;
    }
    while (largest >= kSide * width_) Widen();
  }
  for (const float value : values) {
    if (value == 0.0f) {
      ++zeros_;
      continue;
    }
    const auto bin = static_cast<int>(std::floor(value / width_)) + kSide;
    ++counts_[static_cast<size_t>(std::max(bin, 0))];
  }
}

void Histogram::Widen() {
  std::array<uint64_t, 2 * kSide> wide{};
  for (int bin = 0; bin < 2 * kSide; ++bin) {
    wide[static_cast<size_t>(bin / 2 + kSide / 2)] += counts_[static_cast<size_t>(bin)];
  }
  counts_ = wide;
  width_ *= 2.0;
}

std::unique_ptr<Observer> MakeObserver(const ObserverSpec& spec, const ActivationScheme& scheme) {
  switch (spec.kind) {
    case ObserverKind::kMinMax:
      break;
    case ObserverKind::kMovingAverage:
      return std::make_unique<MovingAverageObserver>(spec.momentum);
    case ObserverKind::kPercentile:
      return std::make_unique<PercentileObserver>(spec.percentile);
    case ObserverKind::kMse:
      return std::make_unique<MseObserver>(scheme);
    case ObserverKind::kEntropy:
      if (scheme.dtype == DType::kU8) return std::make_unique<EntropyObserver>();
      break;
  }
  return std::make_unique<MinMaxObserver>();
}

}  // namespace spillway
