#include "checks.h"

#include "base/file.h"
#include "qnn/api/library.h"
#include "qnn/htp/soc_table.h"

namespace spillway::cli {

Status CheckSoc(const std::string& soc) {
  const auto found = qnn::htp::FindSoc(soc);
  if (found.ok()) return OkStatus();
  return InvalidArgumentError("--soc " + soc + ": " + found.status().message());
}

Status CheckVendorLibrary(const std::string& qnn_lib_dir, const char* name) {
  const auto folder = qnn::FindLibraryDir(qnn_lib_dir);
  if (!folder.ok()) return VendorError(folder.status().message());
  if (folder->empty()) return OkStatus();  // the system's loader knows
  if (name == nullptr) name = qnn::kHtpLibraryName;
  if (FileExists(JoinPath(*folder, name))) return OkStatus();
  return VendorError(*folder + ": has no " + name +
                     "; --qnn-lib-dir or SPILLWAY_QNN_LIB_DIR must name the folder that holds the "
                     "vendor's libraries (./quickstart downloads them)");
}

Status CheckReplaceable(const std::string& path) {
  if (!FileExists(path) && !IsDirectory(path)) return OkStatus();
  if (!IsDirectory(path)) {
    return InvalidArgumentError("-o " + path + ": is a file; a package is a folder");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto names, ListFolder(path));
  if (names.empty() || FileExists(JoinPath(path, "manifest.json"))) return OkStatus();
  return InvalidArgumentError("-o " + path +
                              ": the folder is not empty and no package (it has no manifest.json); "
                              "it would be replaced as a whole. Choose another, or empty it");
}

}  // namespace spillway::cli
