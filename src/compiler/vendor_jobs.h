// Several vendor jobs, some at a time, those that were done before from the cache.

#ifndef SPILLWAY_COMPILER_VENDOR_JOBS_H_
#define SPILLWAY_COMPILER_VENDOR_JOBS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/context_cache.h"
#include "compiler/vendor_job.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

struct ContextTask {
  VendorJob job;
  std::string label;        // "context 0 of 4", for progress
  std::string cache_key;    // empty: never from the cache
  std::string description;  // of the cache's entry
};

struct TaskOptions {
  uint32_t jobs = 1;              // at the same time, at least 1
  bool in_process = false;        // then one at a time
  double timeout_s = 3600;        // for one
  ContextCache* cache = nullptr;  // may be null
};

// Runs all; the results are in the order of the tasks. The first failure stops the
// jobs that run, and is returned. `progress` is called from several threads, one at a
// time.
Result<std::vector<VendorResult>> RunContextTasks(const std::vector<ContextTask>& tasks,
                                                  const TaskOptions& options,
                                                  const ProgressCallback& progress);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_VENDOR_JOBS_H_
