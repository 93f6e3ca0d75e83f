// Differences between two integer tensors.

#ifndef SPILLWAY_EVAL_INTEGER_DIFFERENCE_H_
#define SPILLWAY_EVAL_INTEGER_DIFFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "graph/types.h"

namespace spillway {

struct IntegerDifference {
  double max = 0, sum = 0;
  uint64_t count = 0;
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }

  // Adds `elements` consecutive values of type `dtype`. f32 counts as itself, f16 in
  // units of 2^-10 of the largest magnitude in `a`.
  void Add(DType dtype, const std::byte* a, const std::byte* b, size_t elements) {
    switch (dtype) {
      case DType::kU8:
        return AddAs<uint8_t>(a, b, elements);
      case DType::kS8:
        return AddAs<int8_t>(a, b, elements);
      case DType::kU16:
        return AddAs<uint16_t>(a, b, elements);
      case DType::kS16:
        return AddAs<int16_t>(a, b, elements);
      case DType::kF32:
        return AddAs<float>(a, b, elements);
      case DType::kF16:
        return AddHalves(a, b, elements);
      default:
        return AddAs<int32_t>(a, b, elements);
    }
  }

 private:
  void AddHalves(const std::byte* a, const std::byte* b, size_t elements) {
    const auto value = [](const std::byte* from, size_t i) {
      uint16_t half;
      std::memcpy(&half, from + i * sizeof(half), sizeof(half));
      return static_cast<double>(HalfToFloat(half));
    };
    double largest = 0;
    for (size_t i = 0; i < elements; ++i) largest = std::max(largest, std::abs(value(a, i)));
    for (size_t i = 0; i < elements; ++i) {
      double difference = std::abs(value(a, i) - value(b, i)) * 1024;
      if (largest > 0) difference /= largest;
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      max = std::max(max, difference);
      sum += difference;
    }
    count += elements;
  }

  template <typename T>
  void AddAs(const std::byte* a, const std::byte* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      T left, right;
      std::memcpy(&left, a + i * sizeof(T), sizeof(T));
      std::memcpy(&right, b + i * sizeof(T), sizeof(T));
      const double difference = std::abs(static_cast<double>(left) - static_cast<double>(right));
      max = std::max(max, difference);
      sum += difference;
    }
    count += elements;
  }
};

}  // namespace spillway

#endif  // SPILLWAY_EVAL_INTEGER_DIFFERENCE_H_
