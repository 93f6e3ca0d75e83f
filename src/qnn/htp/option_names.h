// The words for the values of HtpOptions on the command line and in manifests:
// "burst", "normal_high", "fp16", ...

#ifndef SPILLWAY_QNN_HTP_OPTION_NAMES_H_
#define SPILLWAY_QNN_HTP_OPTION_NAMES_H_

#include <string>
#include <string_view>

#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway::qnn::htp {

// Each for E = Precision, PerformanceMode, PdSession, GraphPriority,
// ProfileLevel, SlcAllocator and VendorLogLevel.

// "unknown" for a value that is none of the enumeration.
template <typename E>
std::string_view OptionName(E value);

// kInvalidArgument says what the option is and lists the known names.
template <typename E>
Result<E> ParseOption(std::string_view name);

// All names with commas between, in the order of the enumeration.
template <typename E>
std::string OptionNames();

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_OPTION_NAMES_H_
