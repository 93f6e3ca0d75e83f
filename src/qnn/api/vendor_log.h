// The vendor's log, line by line.

#ifndef SPILLWAY_QNN_API_VENDOR_LOG_H_
#define SPILLWAY_QNN_API_VENDOR_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qnn/api/abi.h"
#include "qnn/api/library.h"
#include "qnn/api/log_reader.h"
#include "spillway/status.h"

namespace spillway::qnn {

// Called with one line at a time, without line end and level tag, from any thread that the
// vendor likes, never from two threads at once for one VendorLog. It must not
// call the vendor library.
using LogSink = std::function<void(abi::LogLevel level, std::string_view line)>;

struct VendorLogState;

// A log handle of the vendor. The vendor's callback carries no user pointer, so
// there are kMost places for logs in a process. Thread-safe.
class VendorLog {
 public:
  static constexpr int kMost = 16;

  // `level`: kLogVerbose is needed for the facts about options and SLC, kLogInfo
  // for stage times and DDR traffic. `sink` gets every line that passes the
  // level; it may be empty.
  static Result<std::shared_ptr<VendorLog>> Create(std::shared_ptr<const Library> library,
                                                   abi::LogLevel level, LogSink sink = {});
  ~VendorLog();
  VendorLog(const VendorLog&) = delete;
  VendorLog& operator=(const VendorLog&) = delete;

  const Library& library() const { return *library_; }
  const std::shared_ptr<const Library>& shared_library() const { return library_; }
  abi::Handle handle() const { return handle_; }

  // What the lines said so far.
  LogFacts facts() const;
  // Around the preparation of a graph: the lines between belong to it. `progress`
  // (may be empty) is called with the name of the stage and the finished part of
  // the whole preparation, 0..1; it must not call the vendor library or this
  // object. One preparation at a time is followed.
  void BeginPrepare(std::string_view graph,
                    std::function<void(std::string_view stage, double fraction)> progress);
  void EndPrepare();
  // A line that the library printed elsewhere, as if it had logged it.
  void AddPrintedLine(std::string_view line);

  // The different error lines since a mark, oldest first, out of the last 16;
  // without the ones that always come and mean nothing.
  uint64_t Mark() const;
  std::vector<std::string> ProblemsSince(uint64_t mark) const;

 private:
  VendorLog(std::shared_ptr<const Library> library, std::shared_ptr<VendorLogState> state);

  std::shared_ptr<const Library> library_;
  std::shared_ptr<VendorLogState> state_;  // shared with the vendor's callback
  int slot_ = -1;
  abi::Handle handle_ = nullptr;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_VENDOR_LOG_H_
