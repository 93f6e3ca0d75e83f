// Where tests find what is not in the repository.

#ifndef SPILLWAY_TESTS_SUPPORT_PATHS_H_
#define SPILLWAY_TESTS_SUPPORT_PATHS_H_

#include <optional>
#include <string>

namespace spillway::test {

// The project's root folder.
std::string SourceDir();
// .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf, when it is there.
std::optional<std::string> ModelPath();
// The folder with libQnnHtp.so: SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn.
std::optional<std::string> QnnLibDir();
// ../shared/data with golden values for evaluation, when it is there.
std::optional<std::string> SharedDataDir();

// A fresh folder that is removed at the end of its scope.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_PATHS_H_
