// HtpOptions as the JSON object that manifests and jobs carry.

#ifndef SPILLWAY_COMPILER_HTP_OPTIONS_JSON_H_
#define SPILLWAY_COMPILER_HTP_OPTIONS_JSON_H_

#include <string>
#include <string_view>

#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway {

std::string HtpOptionsToJson(const HtpOptions& options);
// kCorruptData names the field that is missing or of the wrong type.
Result<HtpOptions> HtpOptionsFromJson(std::string_view text);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_HTP_OPTIONS_JSON_H_
