#include "base/worker_program.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/file.h"

namespace spillway {
namespace {

constexpr char kName[] = "spillway-worker";

// The folder of the file that this code was loaded from.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindWorkerProgram), &info) == 0) return {};
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

}  // namespace

Result<std::string> FindWorkerProgram() {
  std::vector<std::string> places;
  if (const char* chosen = std::getenv("SPILLWAY_WORKER"); chosen != nullptr) {
    places.emplace_back(chosen);
  } else {
    places.push_back(JoinPath(ExecutableFolder(), kName));
    if (const std::string own = OwnFolder(); !own.empty()) {
      places.push_back(own + "/../bin/" + kName);
      places.push_back(own + "/../libexec/spillway/" + kName);
    }
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return place;
  }
  return NotFoundError(fmt::format(
      "the program {} is not there; tried {}. Install it beside the spillway program or set "
      "SPILLWAY_WORKER to its path",
      kName, fmt::join(places, ", ")));
}

}  // namespace spillway
