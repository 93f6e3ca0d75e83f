// Words for a node that the vendor refused. Internal to qnn.

#ifndef SPILLWAY_QNN_API_DESCRIBE_NODE_H_
#define SPILLWAY_QNN_API_DESCRIBE_NODE_H_

#include <string>
#include <vector>

#include "qnn/api/abi.h"
#include "spillway/status.h"

namespace spillway::qnn {

// "node 'l0.q' of type Conv2d: inputs x u16 [1, 1, 32, 576], w s8 [1, 1, 576, 576];
// outputs y u16 [1, 1, 32, 576]; parameters stride [2], group 1"
std::string DescribeAbiNode(const abi::OpConfig& config);

// kUnsupported for the numbers that mean "the target does not support this" (3110,
// 4005), kVendor for others.
Status RefusedNode(const std::string& description, abi::Error error,
                   const std::vector<std::string>& log_lines);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_DESCRIBE_NODE_H_
