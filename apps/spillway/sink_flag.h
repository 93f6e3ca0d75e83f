// --attention-sink SINK,BATCH.

#ifndef SPILLWAY_APPS_SPILLWAY_SINK_FLAG_H_
#define SPILLWAY_APPS_SPILLWAY_SINK_FLAG_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/decoding.h"

namespace spillway::cli {

inline CLI::Option* AddSinkFlag(CLI::App& app, std::optional<AttentionSink>& sink,
                                const std::string& help) {
  return app
      .add_option_function<std::vector<uint32_t>>(
          "--attention-sink",
          [&sink](const std::vector<uint32_t>& n) {
            sink = AttentionSink{n[0], n[1]};
          },
          help)
      ->delimiter(',')
      ->expected(2)
      ->type_name("SINK,BATCH");
}

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_SINK_FLAG_H_
