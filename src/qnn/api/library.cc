#include "qnn/api/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "qnn/api/errors.h"

namespace spillway::qnn {
namespace {

constexpr char kDirVariable[] = "SPILLWAY_QNN_LIB_DIR";
constexpr char kDepsDir[] = ".deps/qnn/onnxruntime_qnn";
constexpr uint32_t kCoreMajor = 2;
constexpr uint32_t kOldestCoreMinor = 32;
constexpr uint32_t kNewestCoreMinor = 40;
constexpr uint32_t kSystemMajor = 1;

constexpr bool kSystemLoaderHasLibraries =
#if defined(__aarch64__) || defined(__ANDROID__)
    true;
#else
    false;
#endif

std::string CurrentFolder() {
  char* path = realpath(".", nullptr);
  std::string folder = path == nullptr ? "" : path;
  std::free(path);
  return folder;
}

// The first of `folder` and its parents that has the libraries, or "".
std::string SearchUpwards(std::string folder) {
  while (!folder.empty()) {
    const std::string candidate = JoinPath(folder, kDepsDir);
    if (FileExists(JoinPath(candidate, kHtpLibraryName))) return candidate;
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  }
  return {};
}

// What to do about the loader's message.
std::string LoaderAdvice(std::string_view message) {
  struct Case {
    std::string_view part, advice;
  };
  static constexpr Case kCases[] = {
      {"libatomic", "install the Debian package libatomic1"},
      {"libc++",
       "keep the wheel's sibling folder onnxruntime_qnn.libs beside the library's folder, "
       "or install libc++1 and libc++abi1"},
      {"libunwind",
       "keep the wheel's sibling folder onnxruntime_qnn.libs beside the library's "
       "folder, or install libunwind-14"},
      {"GLIBC", "this system's C library is too old for the vendor library; use a newer system"},
      {"GLIBCXX", "this system's C++ library is too old for the vendor library"},
      {"wrong ELF class", "the library is for another processor; use the one for this machine"},
      {"invalid ELF header", "the file is not a shared library; download it again"},
      {"file too short", "the file is cut short; download it again"},
  };
  for (const Case& one : kCases) {
    if (message.find(one.part) != std::string_view::npos) return std::string(one.advice);
  }
  return "check that it is the library for this machine and that the libraries it needs are "
         "installed (ldd lists them)";
}

struct Loaded {
  std::string path;
  void* provider_function = nullptr;
};

// Loads `name` and finds `symbol` in it.
Result<Loaded> LoadSymbol(const std::string& dir, const char* name, const char* symbol) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::string folder, FindLibraryDir(dir));
  Loaded loaded;
  loaded.path = folder.empty() ? name : JoinPath(folder, name);
  if (!folder.empty() && !FileExists(loaded.path)) {
    return NotFoundError(fmt::format(
        "{}: the vendor library is not there. Point --qnn-lib-dir or {} at the folder that holds "
        "{} and {}, or run ./quickstart to download them.",
        loaded.path, kDirVariable, kHtpLibraryName, kSystemLibraryName));
  }
  void* handle = dlopen(loaded.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    const std::string message = error == nullptr ? "no reason given" : error;
    return NotFoundError(fmt::format("{}: the vendor library cannot be loaded: {}. Next: {}.",
                                     loaded.path, message, LoaderAdvice(message)));
  }
  loaded.provider_function = dlsym(handle, symbol);
  if (loaded.provider_function == nullptr) {
    dlclose(handle);
    return UnsupportedError(fmt::format(
        "{}: this is not the vendor's {}: it does not export the symbol {}. Use the library of "
        "QAIRT 2.43 or later for this machine.",
        loaded.path, name, symbol));
  }
  return loaded;
}

}  // namespace

std::string VersionText(const abi::Version& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

Result<std::string> FindLibraryDir(const std::string& dir) {
  if (!dir.empty()) return dir;
  const char* variable = std::getenv(kDirVariable);
  if (variable != nullptr && *variable != '\0') return std::string(variable);
  for (const std::string& start : {CurrentFolder(), ExecutableFolder()}) {
    std::string found = SearchUpwards(start);
    if (!found.empty()) return found;
  }
  if (kSystemLoaderHasLibraries) return std::string();
  return NotFoundError(fmt::format(
      "the vendor libraries {} and {} were not found: {} is not set and no parent of {} or {} has "
      "{}. Run ./quickstart to download them, or point --qnn-lib-dir or {} at a QAIRT library "
      "folder.",
      kHtpLibraryName, kSystemLibraryName, kDirVariable, CurrentFolder(), ExecutableFolder(),
      kDepsDir, kDirVariable));
}

Result<const abi::Interface*> ChooseProvider(const std::string& path,
                                             const abi::Interface* const* providers,
                                             uint32_t count) {
  if (providers == nullptr || count == 0) {
    return UnsupportedError(
        fmt::format("{}: the library offers no provider, expected one for "
                    "HTP (backend {}).",
                    path, abi::kHtpBackendId));
  }
  const abi::Interface* htp = nullptr;
  std::string seen;
  for (uint32_t i = 0; i < count; ++i) {
    if (providers[i] == nullptr) continue;
    seen += fmt::format("{}{}", seen.empty() ? "" : ", ", providers[i]->backend_id);
    if (providers[i]->backend_id == abi::kHtpBackendId && htp == nullptr) htp = providers[i];
  }
  if (htp == nullptr) {
    return UnsupportedError(fmt::format(
        "{}: the library is for backend {}, expected {} (HTP). Use libQnnHtp.so itself.", path,
        seen.empty() ? "none" : seen, abi::kHtpBackendId));
  }
  const abi::Version& core = htp->version.core;
  if (core.major != kCoreMajor || core.minor < kOldestCoreMinor) {
    return UnsupportedError(fmt::format(
        "{}: the library has QNN core API {}, expected {}.{} to {}.{}. Use another QAIRT release "
        "(2.43 or later).",
        path, VersionText(core), kCoreMajor, kOldestCoreMinor, kCoreMajor, kNewestCoreMinor));
  }
  if (core.minor > kNewestCoreMinor) {
    Log(LogLevel::kWarning,
        "{}: QNN core API {} is newer than the newest known one, {}.{}; going on", path,
        VersionText(core), kCoreMajor, kNewestCoreMinor);
  }
  return htp;
}

Result<std::shared_ptr<const Library>> Library::Load(const std::string& dir) {
  SPILLWAY_ASSIGN_OR_RETURN(const Loaded loaded,
                            LoadSymbol(dir, kHtpLibraryName, abi::kGetProvidersSymbol));
  const auto get_providers = reinterpret_cast<abi::GetProviders>(loaded.provider_function);
  const abi::Interface** providers = nullptr;
  uint32_t count = 0;
  const abi::Error error = get_providers(&providers, &count);
  if (error != 0) {
    return VendorFailure(fmt::format("{}: {}", loaded.path, abi::kGetProvidersSymbol), error, {});
  }
  std::shared_ptr<Library> library(new Library);
  library->path_ = loaded.path;
  SPILLWAY_ASSIGN_OR_RETURN(library->interface_, ChooseProvider(loaded.path, providers, count));
  const char* build_id = nullptr;
  const abi::Error id_error = library->fn().backend_get_build_id(&build_id);
  if (id_error != 0) {
    return VendorFailure(fmt::format("{}: asking for the build id", loaded.path), id_error, {});
  }
  if (build_id != nullptr) library->build_id_ = build_id;
  return std::shared_ptr<const Library>(std::move(library));
}

Result<std::shared_ptr<const SystemLibrary>> SystemLibrary::Load(const std::string& dir) {
  SPILLWAY_ASSIGN_OR_RETURN(const Loaded loaded,
                            LoadSymbol(dir, kSystemLibraryName, abi::kGetSystemProvidersSymbol));
  const auto get_providers = reinterpret_cast<abi::GetSystemProviders>(loaded.provider_function);
  const abi::SystemInterface** providers = nullptr;
  uint32_t count = 0;
  const abi::Error error = get_providers(&providers, &count);
  if (error != 0) {
    return VendorFailure(fmt::format("{}: {}", loaded.path, abi::kGetSystemProvidersSymbol), error,
                         {});
  }
  if (providers == nullptr || count == 0 || providers[0] == nullptr) {
    return UnsupportedError(fmt::format("{}: the library offers no provider.", loaded.path));
  }
  if (providers[0]->version.major != kSystemMajor) {
    return UnsupportedError(
        fmt::format("{}: the library has QNN System API {}, expected {}.x. Use "
                    "another QAIRT release.",
                    loaded.path, VersionText(providers[0]->version), kSystemMajor));
  }
  std::shared_ptr<SystemLibrary> library(new SystemLibrary);
  library->path_ = loaded.path;
  library->interface_ = providers[0];
  return std::shared_ptr<const SystemLibrary>(std::move(library));
}

}  // namespace spillway::qnn
