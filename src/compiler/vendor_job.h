// One context binary to be made by the vendor's compiler: the job, its events
// and its result, as plain data that travels between processes as JSON.

#ifndef SPILLWAY_COMPILER_VENDOR_JOB_H_
#define SPILLWAY_COMPILER_VENDOR_JOB_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/ipc.h"
#include "base/log.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

// Whether a job writes a context binary: not when the graphs are prepared on the device
// (then every node is only shown to the vendor) nor when the calls are recorded.
bool MakesBinary(const HtpOptions& options);

struct VendorJob {
  std::string folder;       // holds graphs.fb and weights.bin
  uint32_t shard = 0;       // whose graphs to compile, all into one context
  bool evictor = false;     // instead of a shard's graphs: the evictor's
  std::string output_path;  // written under a temporary name and renamed
  std::string qnn_lib_dir;
  HtpOptions htp;  // weight_sharing is set, slc_allocator on or off

  std::string ToJson() const;
  static Result<VendorJob> FromJson(std::string_view text);
};

struct VendorResult {
  std::string build_id;
  std::string core_api, backend_api;
  uint32_t soc_model = 0;  // as the binary says
  double finalize_s = 0;   // inside graphFinalize
  double total_s = 0;
  ShardReport shard;

  std::string ToJson() const;
  static Result<VendorResult> FromJson(std::string_view text);
};

// Told while a job runs; called from any thread, one call at a time.
struct VendorEvents {
  std::function<void(std::string_view stage, double fraction)> progress;
  std::function<void(LogLevel level, std::string_view line)> log;
  // May be null. When it turns true, a job in a child process ends soon, with
  // kFailedPrecondition.
  const std::atomic<bool>* stop = nullptr;
};

// Runs the job in this process. A crash of the vendor library is a crash of the
// caller.
Result<VendorResult> RunVendorJob(const VendorJob& job, const VendorEvents& events);

// Runs the job in a child process; a crash or a passed deadline is an error with
// the child's last words, and nothing is left at the output path.
Result<VendorResult> RunVendorJobInWorker(const VendorJob& job, double timeout_s,
                                          const VendorEvents& events);

// The child's side: runs the job of `request` (the first message, whose "job" is
// "compile") and answers on the channel.
Status ServeVendorJob(Channel& channel, std::string_view request);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_VENDOR_JOB_H_
