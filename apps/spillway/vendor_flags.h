// Flags of commands that use the vendor's libraries.

#ifndef SPILLWAY_APPS_SPILLWAY_VENDOR_FLAGS_H_
#define SPILLWAY_APPS_SPILLWAY_VENDOR_FLAGS_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "spillway/compile.h"

namespace spillway::cli {

inline CLI::Option* AddLibraryDirFlag(CLI::App& app, std::string& dir) {
  return app.add_option("--qnn-lib-dir", dir,
                        "Folder of libQnnHtp.so; default: $SPILLWAY_QNN_LIB_DIR, then .deps/");
}

// --htp auto|on|off; `build` must be kAuto before.
inline CLI::Option* AddHtpBuildFlag(CLI::App& app, HtpBuild& build, const std::string& what) {
  static const std::map<std::string, HtpBuild> kBuilds = {
      {"auto", HtpBuild::kAuto}, {"on", HtpBuild::kOn}, {"off", HtpBuild::kOff}};
  return app
      .add_option_function<std::string>(
          "--htp", [&build](const std::string& name) { build = kBuilds.at(name); },
          what + ": auto (when the vendor's libraries are found), on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->default_str("auto");
}

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_VENDOR_FLAGS_H_
