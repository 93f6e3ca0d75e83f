#include "compiler/vendor_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"

namespace spillway {
namespace {

class TaskRunner {
 public:
  TaskRunner(const std::vector<ContextTask>& tasks, const TaskOptions& options,
             const ProgressCallback& progress)
      : tasks_(tasks), options_(options), progress_(progress), results_(tasks.size()) {}

  Result<std::vector<VendorResult>> Run() {
    const size_t wanted = options_.in_process ? 1 : std::max<size_t>(options_.jobs, 1);
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(wanted, tasks_.size()); ++i) {
      threads.emplace_back([this] { Work(); });
    }
    Work();
    for (std::thread& thread : threads) thread.join();
    SPILLWAY_RETURN_IF_ERROR(failure_);
    return results_;
  }

 private:
  void Work() {
    while (!stop_) {
      const size_t index = next_++;
      if (index >= tasks_.size()) return;
      Result<VendorResult> result = RunOne(tasks_[index]);
      if (result.ok()) {
        results_[index] = std::move(result).value();
        continue;
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stop_.exchange(true)) failure_ = result.status();
    }
  }

  Result<VendorResult> RunOne(const ContextTask& task) {
    const bool cached = options_.cache != nullptr && !task.cache_key.empty();
    if (cached) {
      Result<std::optional<VendorResult>> found =
          options_.cache->Take(task.cache_key, task.job.output_path);
      // A cache that does not work costs time, not the compile.
      if (!found.ok()) Log(LogLevel::kWarning, "context cache: {}", found.status().message());
      if (found.ok() && found->has_value()) {
        Log(LogLevel::kInfo, "{}: taken from the cache {}", task.label, options_.cache->folder());
        VendorResult result = std::move(**found);
        result.shard.from_cache = true;
        return result;
      }
    }
    VendorEvents events;
    events.progress = [&](std::string_view stage, double fraction) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (progress_) progress_(fmt::format("{}: {}", task.label, stage), fraction);
    };
    events.log = [](LogLevel level, std::string_view line) { LogMessage(level, line); };
    events.stop = &stop_;
    Result<VendorResult> result = options_.in_process
                                      ? RunVendorJob(task.job, events)
                                      : RunVendorJobInWorker(task.job, options_.timeout_s, events);
    if (result.ok() && cached) {
      const Status put =
          options_.cache->Put(task.cache_key, task.job.output_path, *result, task.description);
      if (!put.ok()) Log(LogLevel::kWarning, "context cache: {}", put.message());
    }
    return result;
  }

  const std::vector<ContextTask>& tasks_;
  const TaskOptions& options_;
  const ProgressCallback& progress_;
  std::vector<VendorResult> results_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Status failure_;
};

}  // namespace

Result<std::vector<VendorResult>> RunContextTasks(const std::vector<ContextTask>& tasks,
                                                  const TaskOptions& options,
                                                  const ProgressCallback& progress) {
  return TaskRunner(tasks, options, progress).Run();
}

}  // namespace spillway
