#include "compiler/find_vendor.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "qnn/api/library.h"

namespace spillway {
namespace {

// `dir`, when both libraries are in it; loading them is left to the vendor's process.
Result<std::string> CheckVendorFolder(const std::string& dir) {
  for (const char* name : {qnn::kHtpLibraryName, qnn::kSystemLibraryName}) {
    if (dir.empty() || FileExists(JoinPath(dir, name))) continue;
    return NotFoundError(fmt::format(
        "{}: the vendor library is not there. Point --qnn-lib-dir or SPILLWAY_QNN_LIB_DIR at the "
        "folder that holds it, or run ./quickstart to download it.",
        JoinPath(dir, name)));
  }
  return dir;
}

}  // namespace

Result<std::string> FindVendor(HtpBuild build, const std::string& qnn_lib_dir,
                               std::string& left_out) {
  if (build == HtpBuild::kOff) {
    left_out = "not asked for (--htp off)";
    return std::string();
  }
  Result<std::string> dir = qnn::FindLibraryDir(qnn_lib_dir);
  if (dir.ok()) dir = CheckVendorFolder(*dir);
  if (dir.ok() || build == HtpBuild::kOn || !qnn_lib_dir.empty()) return dir;
  left_out = dir.status().message();
  Log(LogLevel::kWarning, "no context binary will be made: {}", left_out);
  return std::string();
}

}  // namespace spillway
