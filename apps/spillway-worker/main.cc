// spillway-worker: loads the vendor library, so that a crash of it is an error
// message of the parent and not its end. Started by the library; not for people.
//
// Descriptor 3 is a channel to the parent. The first message is a JSON object
// whose "job" says what to do: "compile" (one context binary) or "run" (load a
// context binary and execute its graphs on demand). Standard output and error are
// the vendor's; the parent keeps their end for its error messages.

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/ipc.h"
#include "base/subprocess.h"
#include "compiler/vendor_job.h"
#include "runtime/context_runner.h"

namespace {

bool IsSaverJob(const nlohmann::json& request) {
  return request.contains("htp") && !request["htp"].value("saver_dir", "").empty();
}

}  // namespace

int main() {
  using spillway::Channel;
  Channel channel(spillway::Subprocess::kChannelFd);
  const spillway::Result<spillway::Message> first = channel.Receive();
  if (!first.ok()) {
    std::fprintf(stderr,
                 "spillway-worker is started by spillway and has nothing to do by itself (%s)\n",
                 first.status().message().c_str());
    return 2;
  }
  const auto request = nlohmann::json::parse(first->text, nullptr, /*allow_exceptions=*/false);
  const std::string job = request.is_object() ? request.value("job", "") : "";
  spillway::Status status;
  if (job == "compile") {
    status = spillway::ServeVendorJob(channel, first->text);
  } else if (job == "run") {
    status = spillway::ServeContext(channel, *first);
  } else {
    std::fprintf(stderr, "unknown job '%s'\n", job.c_str());
    return 2;
  }
  // The vendor's exit handlers sometimes hang, and only its saver's has something to save.
  if (IsSaverJob(request)) return status.ok() ? 0 : 1;
  std::fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}
