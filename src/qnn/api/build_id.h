// The build ids of the vendor's libraries, like "v2.51.0.260929181845".

#ifndef SPILLWAY_QNN_API_BUILD_ID_H_
#define SPILLWAY_QNN_API_BUILD_ID_H_

#include <optional>
#include <string_view>

namespace spillway::qnn {

// Negative when the library of `a` is older than that of `b`, 0 when both are the
// same, positive when it is newer: the numbers between the dots are compared from the
// left (major, minor, patch, date of the build). Nothing when one is no build id.
// A library loads context binaries of its own or an older build, not of a newer one.
std::optional<int> CompareBuildIds(std::string_view a, std::string_view b);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_BUILD_ID_H_
