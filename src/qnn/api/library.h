// Finding, loading and checking the vendor's two libraries.
//
// A library stays mapped until the process ends: its threads and static data do
// not survive an unload. Loading costs about 0.1 s and 50 MB. Loading prints a
// line that starts with "LIBNATIVE" to the terminal, and releases 2.47 to 2.49
// print preparation progress to standard output whatever the log level (Graph
// takes it into the log): a program whose output matters loads the library in a
// child process and keeps its output (spillway-worker does).

#ifndef SPILLWAY_QNN_API_LIBRARY_H_
#define SPILLWAY_QNN_API_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "qnn/api/abi.h"
#include "qnn/api/abi_system.h"
#include "spillway/status.h"

namespace spillway::qnn {

inline constexpr char kHtpLibraryName[] = "libQnnHtp.so";
inline constexpr char kSystemLibraryName[] = "libQnnSystem.so";
inline constexpr char kSaverLibraryName[] = "libQnnSaver.so";

// The folder that holds the vendor's libraries. Tried in this order:
//   1. `dir`, when not empty: nothing else is tried then;
//   2. the environment variable SPILLWAY_QNN_LIB_DIR: likewise;
//   3. .deps/qnn/onnxruntime_qnn in the current folder or one of its parents,
//      or in a parent of the program's folder;
//   4. on AArch64 and Android an empty string: the system's loader finds them.
// kNotFound says every place tried and how to get the libraries. The libraries
// are not loaded.
Result<std::string> FindLibraryDir(const std::string& dir = {});

// libQnnHtp.so. Thread-safe: all members are constant after Load.
class Library {
 public:
  // Loads the library from FindLibraryDir(dir) and checks that it exports the
  // provider function, has an HTP provider, and speaks a core API that we know.
  // A newer minor version than the newest known one is accepted with a warning
  // in the log. Errors name the path, the symbol or version that was found and
  // expected, and for a dependency that is missing the Debian package or folder
  // that has it.
  static Result<std::shared_ptr<const Library>> Load(const std::string& dir = {});
  // libQnnSaver.so instead: it takes the same calls and compiles nothing, but writes
  // them down as C source (saver_output.c) with the weights beside it (params.bin),
  // in the existing folder `output_dir`. The last lines are written when the process
  // ends or the next record begins. One record a process.
  static Result<std::shared_ptr<const Library>> LoadSaver(const std::string& dir,
                                                          const std::string& output_dir);

  const abi::Functions& fn() const { return interface_->fn; }
  const std::string& path() const { return path_; }
  // The core and backend API versions of the provider.
  const abi::ApiVersion& version() const { return interface_->version; }
  // Like "v2.51.0.260929181845".
  const std::string& build_id() const { return build_id_; }
  // Whether stages, progress and DDR traffic of a preparation go to standard output
  // and not to the log: releases before 2.50.
  bool prints_to_stdout() const { return interface_->version.core.minor < 39; }

 private:
  Library() = default;
  static Result<std::shared_ptr<const Library>> Open(const std::string& path,
                                                     abi::GetProviders get_providers,
                                                     uint32_t backend_id);
  const abi::Interface* interface_ = nullptr;
  std::string path_;
  std::string build_id_;
};

// libQnnSystem.so: reads what is inside a context binary. It needs no device and
// can read every binary, also those that this machine cannot load.
class SystemLibrary {
 public:
  static Result<std::shared_ptr<const SystemLibrary>> Load(const std::string& dir = {});

  const abi::SystemFunctions& fn() const { return interface_->fn; }
  const std::string& path() const { return path_; }
  const abi::Version& version() const { return interface_->version; }

 private:
  SystemLibrary() = default;
  const abi::SystemInterface* interface_ = nullptr;
  std::string path_;
};

// "2.40.0"
std::string VersionText(const abi::Version& version);

// Checks a provider list as Library::Load does; for tests of the messages.
//   path: names the library in errors
Result<const abi::Interface*> ChooseProvider(const std::string& path,
                                             const abi::Interface* const* providers, uint32_t count,
                                             uint32_t backend_id = abi::kHtpBackendId);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_LIBRARY_H_
