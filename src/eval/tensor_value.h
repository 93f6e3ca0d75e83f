// Real values of tensors as executors hold them.

#ifndef SPILLWAY_EVAL_TENSOR_VALUE_H_
#define SPILLWAY_EVAL_TENSOR_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "graph/graph.h"

namespace spillway {

// Element i of `data`, which holds a tensor of that type: u8, u16 with the encoding of the whole
// tensor; f16; everything else is read as f32.
inline float ValueAt(const Tensor& tensor, const std::byte* data, size_t i) {
  switch (tensor.dtype) {
    case DType::kU8:
      return DequantizeValue(static_cast<int32_t>(data[i]), tensor.encoding);
    case DType::kU16: {
      uint16_t value;
      std::memcpy(&value, data + i * sizeof(value), sizeof(value));
      return DequantizeValue(value, tensor.encoding);
    }
    case DType::kF16: {
      uint16_t value;
      std::memcpy(&value, data + i * sizeof(value), sizeof(value));
      return HalfToFloat(value);
    }
    default: {
      float value;
      std::memcpy(&value, data + i * sizeof(value), sizeof(value));
      return value;
    }
  }
}

}  // namespace spillway

#endif  // SPILLWAY_EVAL_TENSOR_VALUE_H_
