// A child process that cannot hurt its parent: it is killed with it, its
// standard output and error are kept (the last 64 KiB), and its death is
// described in words.

#ifndef SPILLWAY_BASE_SUBPROCESS_H_
#define SPILLWAY_BASE_SUBPROCESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ipc.h"
#include "spillway/status.h"

namespace spillway {

// How a process ended.
struct ExitInfo {
  int exit_code = -1;  // when it exited
  int signal = 0;      // when a signal ended it
  // Its peak resident memory in bytes, looked up every 50 ms and at Kill(): what
  // it took in the last moment before it ended by itself may be missing.
  uint64_t peak_rss_bytes = 0;
  // "exited with code 3", "was killed by signal 11 (Segmentation fault)".
  std::string ToString() const;
};

// Methods are not thread-safe, except Kill().
class Subprocess {
 public:
  // Starts `program` with `arguments` (argv[1..]). The child gets one end of a
  // socket pair as descriptor 3 (kChannelFd) and no other descriptors than
  // 0 (/dev/null), 1 and 2 (kept). The child dies when this process dies.
  // It is a process group of its own: Ctrl-C on the terminal reaches this process only.
  static Result<std::unique_ptr<Subprocess>> Start(const std::string& program,
                                                   const std::vector<std::string>& arguments);
  static constexpr int kChannelFd = 3;

  // Kills the child if it still runs, and waits for it.
  ~Subprocess();

  Channel& channel();
  int pid() const;
  void Kill();
  // Waits for the end, at most `timeout_seconds`; kTimeout when it still runs.
  Result<ExitInfo> Wait(std::optional<double> timeout_seconds = std::nullopt);
  // The last output of the child, standard output and error interleaved.
  std::string Output();

 private:
  struct Impl;
  explicit Subprocess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway

#endif  // SPILLWAY_BASE_SUBPROCESS_H_
