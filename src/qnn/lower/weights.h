// Weights of Linear in the vendor's form.

#ifndef SPILLWAY_QNN_LOWER_WEIGHTS_H_
#define SPILLWAY_QNN_LOWER_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "qnn/api/tensor.h"

namespace spillway::qnn {

// The values of a [N, K] tensor, s8 (packed or row-major) or f16, as [K, N].
std::vector<std::byte> TransposeWeights(const Tensor& tensor);

// A per-channel or block encoding with the channels on `axis`. 4-bit values are
// stored one a byte, so they go out with a bit width.
TensorEncoding WeightEncoding(const Encoding& encoding, int32_t axis);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_LOWER_WEIGHTS_H_
