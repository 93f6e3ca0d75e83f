// What a vendor library prints to standard output, as lines.

#ifndef SPILLWAY_QNN_API_STDOUT_CAPTURE_H_
#define SPILLWAY_QNN_API_STDOUT_CAPTURE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "spillway/status.h"

namespace spillway::qnn {

// While an object lives, descriptor 1 of the process leads to `line`, which is
// called with one line at a time (without its end; a carriage return ends one too),
// from a thread of this object. The destructor gives the descriptor back after the last
// line. Everything that the process prints to standard output in that time is taken,
// also by its other threads: meant for a process that the vendor has for itself
// (spillway-worker), and for tests. A second object waits for the first.
class StdoutCapture {
 public:
  // kIo when the system has no descriptors left; nothing is captured then.
  static Result<std::unique_ptr<StdoutCapture>> Start(std::function<void(std::string_view)> line);
  ~StdoutCapture();
  StdoutCapture(const StdoutCapture&) = delete;
  StdoutCapture& operator=(const StdoutCapture&) = delete;

 private:
  StdoutCapture();
  Status Redirect();
  void ReadLines();

  std::unique_lock<std::mutex> turn_;
  std::function<void(std::string_view)> line_;
  int saved_ = -1;     // the descriptor 1 of before
  int read_end_ = -1;  // of the pipe
  std::thread reader_;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_STDOUT_CAPTURE_H_
