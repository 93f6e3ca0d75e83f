// Tensors and nodes as lines of the record.

#ifndef SPILLWAY_TESTS_FAKE_QNN_DESCRIBE_H_
#define SPILLWAY_TESTS_FAKE_QNN_DESCRIBE_H_

#include <string>

#include "qnn/api/abi.h"

namespace fake_qnn {

namespace abi = spillway::qnn::abi;

// See fake_qnn.h for the lines' form.
std::string DescribeScalar(const abi::Scalar& scalar);
std::string DescribeTensorLine(const abi::TensorV1& tensor);
std::string DescribeNodeLine(const abi::OpConfig& config);

}  // namespace fake_qnn

#endif  // SPILLWAY_TESTS_FAKE_QNN_DESCRIBE_H_
