// Differences between two integer tensors.

#ifndef SPILLWAY_EVAL_INTEGER_DIFFERENCE_H_
#define SPILLWAY_EVAL_INTEGER_DIFFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "graph/types.h"

namespace spillway {

struct IntegerDifference {
  double max = 0, sum = 0;
  uint64_t count = 0;
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }

  // Adds `elements` consecutive values of type `dtype` (f32 counts as itself).
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
      default:
        return AddAs<int32_t>(a, b, elements);
    }
  }

 private:
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
