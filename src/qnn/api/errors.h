// The vendor's error numbers in words, and the one place that turns a failed
// vendor call into a Status.

#ifndef SPILLWAY_QNN_API_ERRORS_H_
#define SPILLWAY_QNN_API_ERRORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qnn/api/abi.h"
#include "spillway/status.h"

namespace spillway::qnn {

struct ErrorInfo {
  uint32_t code;
  std::string_view words;   // what the number means: "out of memory"
  std::string_view advice;  // a likely cause and what to do next; may be empty
};

// Null when the number is not in the table.
const ErrorInfo* FindError(uint32_t code);

// "error 1002 (0x3ea), out of memory or preparation failed"; a number that the
// table lacks is described by its range ("an unknown context error").
std::string DescribeError(abi::Error error);

// kVendor (code 1002 from an allocation too: the vendor uses that number for
// every failed preparation). The message: "`step` failed: error ...", then the
// advice of the table, then the first 6 of the vendor's own log lines, quoted.
//   step: "finalising graph 'kv_forward'"
//   log_lines: the vendor's error lines of the step, oldest first
//   advice: replaces the advice of the table when not empty
Status VendorFailure(std::string_view step, abi::Error error,
                     const std::vector<std::string>& log_lines, std::string_view advice = {});

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_ERRORS_H_
