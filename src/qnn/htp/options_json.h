// HtpOptions as the JSON object that manifests ("target.htp_options") and compile
// jobs carry. Field names are those of the struct; choices are the words of
// option_names.h; an option that is not set is left out. finalize_config is an
// array of [key, value], op_packages one of objects {path, provider, target}.

#ifndef SPILLWAY_QNN_HTP_OPTIONS_JSON_H_
#define SPILLWAY_QNN_HTP_OPTIONS_JSON_H_

#include <string>
#include <string_view>

#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway::qnn::htp {

// Text that is not UTF-8 has its bad bytes replaced.
std::string HtpOptionsToJson(const HtpOptions& options);

// A field that is absent keeps its default, as in manifests from before it
// existed; slc_allocator may be true or false, as it was in those. kCorruptData
// names the field whose value is of the wrong type or out of range, or that is
// unknown. The values are not checked against a SoC: CheckOptions does that.
Result<HtpOptions> HtpOptionsFromJson(std::string_view text);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_OPTIONS_JSON_H_
