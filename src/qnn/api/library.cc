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

// The Saver's own interface, as observed. Its initialisation takes a list of options:
// 0 is the folder, 1 puts the time into the files' names, 2 is the backend whose custom
// configurations are to be written down. HTP is none that it knows (2.51 refuses them).
constexpr uint32_t kSaverBackendId = 2;
constexpr char kSaverInitializeSymbol[] = "QnnSaver_initialize";
constexpr uint32_t kSaverOutputDirectory = 0;
struct SaverConfig {
  uint32_t option;
  union {
    const char* text;
    uint64_t room[4];
  };
};

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
                                             const abi::Interface* const* providers, uint32_t count,
                                             uint32_t backend_id) {
  const std::string_view name = backend_id == kSaverBackendId ? "Saver" : "HTP";
  const std::string_view file = backend_id == kSaverBackendId ? kSaverLibraryName : kHtpLibraryName;
  if (providers == nullptr || count == 0) {
    return UnsupportedError(
        fmt::format("{}: the library offers no provider, expected one for "
                    "{} (backend {}).",
                    path, name, backend_id));
  }
  const abi::Interface* htp = nullptr;
  std::string seen;
  for (uint32_t i = 0; i < count; ++i) {
    if (providers[i] == nullptr) continue;
    seen += fmt::format("{}{}", seen.empty() ? "" : ", ", providers[i]->backend_id);
    if (providers[i]->backend_id == backend_id && htp == nullptr) htp = providers[i];
  }
  if (htp == nullptr) {
    return UnsupportedError(
        fmt::format("{}: the library is for backend {}, expected {} ({}). Use {} itself.", path,
                    seen.empty() ? "none" : seen, backend_id, name, file));
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
  return Open(loaded.path, reinterpret_cast<abi::GetProviders>(loaded.provider_function),
              abi::kHtpBackendId);
}

Result<std::shared_ptr<const Library>> Library::LoadSaver(const std::string& dir,
                                                          const std::string& output_dir) {
  SPILLWAY_ASSIGN_OR_RETURN(const Loaded loaded,
                            LoadSymbol(dir, kSaverLibraryName, kSaverInitializeSymbol));
  // The pointer from LoadSymbol's dlopen stays mapped; this only finds the other symbol.
  void* handle = dlopen(loaded.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* providers = handle == nullptr ? nullptr : dlsym(handle, abi::kGetProvidersSymbol);
  if (providers == nullptr) {
    return UnsupportedError(fmt::format("{}: this is not the vendor's {}: no symbol {}.",
                                        loaded.path, kSaverLibraryName, abi::kGetProvidersSymbol));
  }
  SaverConfig folder = {kSaverOutputDirectory, {}};
  folder.text = output_dir.c_str();
  const SaverConfig* configs[] = {&folder, nullptr};
  const abi::Error error =
      reinterpret_cast<abi::Error (*)(const SaverConfig**)>(loaded.provider_function)(configs);
  if (error != 0) {
    return VendorFailure(
        fmt::format("{}: setting the record's folder to {}", loaded.path, output_dir), error, {});
  }
  return Open(loaded.path, reinterpret_cast<abi::GetProviders>(providers), kSaverBackendId);
}

Result<std::shared_ptr<const Library>> Library::Open(const std::string& path,
                                                     abi::GetProviders get_providers,
                                                     uint32_t backend_id) {
  const abi::Interface** providers = nullptr;
  uint32_t count = 0;
  const abi::Error error = get_providers(&providers, &count);
  if (error != 0) {
    return VendorFailure(fmt::format("{}: {}", path, abi::kGetProvidersSymbol), error, {});
  }
  std::shared_ptr<Library> library(new Library);
  library->path_ = path;
  SPILLWAY_ASSIGN_OR_RETURN(library->interface_,
                            ChooseProvider(path, providers, count, backend_id));
  const char* build_id = nullptr;
  const abi::Error id_error = library->fn().backend_get_build_id(&build_id);
  if (id_error != 0) {
    return VendorFailure(fmt::format("{}: asking for the build id", path), id_error, {});
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
