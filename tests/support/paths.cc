#include "tests/support/paths.h"

#include <cstdlib>
#include <filesystem>

namespace spillway::test {
namespace {

std::optional<std::string> IfExists(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return std::nullopt;
}

}  // namespace

std::string SourceDir() { return SPILLWAY_SOURCE_DIR; }

std::optional<std::string> ModelPath() {
  return IfExists(SourceDir() + "/.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf");
}

std::optional<std::string> QnnLibDir() {
  const char* chosen = std::getenv("SPILLWAY_QNN_LIB_DIR");
  const std::string folder =
      chosen != nullptr ? chosen : SourceDir() + "/.deps/qnn/onnxruntime_qnn";
  return IfExists(folder + "/libQnnHtp.so") ? std::optional(folder) : std::nullopt;
}

std::optional<std::string> SharedDataDir() { return IfExists(SourceDir() + "/../shared/data"); }

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "spillway-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace spillway::test
