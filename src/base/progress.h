// Progress of a long job, told to whoever listens.
//
// A job that can take over a second takes a `Progress*` (may be null) and calls
// Update() as it goes. The terminal listener draws one line on standard error
// and redraws it at most ten times a second; when standard error is not a
// terminal it prints a line at each new stage instead.

#ifndef SPILLWAY_BASE_PROGRESS_H_
#define SPILLWAY_BASE_PROGRESS_H_

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace spillway {

// Thread-safe.
class Progress {
 public:
  virtual ~Progress() = default;
  // `stage` is what is being done ("calibrate", "finalise prefill_forward");
  // `fraction` of that stage is done, 0..1, or negative when unknown.
  virtual void Update(std::string_view stage, double fraction) = 0;
};

// Calls `progress->Update` unless it is null.
void ReportProgress(Progress* progress, std::string_view stage, double fraction);

// Passes everything on to a function; an empty one is never called.
class CallbackProgress : public Progress {
 public:
  using Callback = std::function<void(std::string_view stage, double fraction)>;
  explicit CallbackProgress(Callback callback) : callback_(std::move(callback)) {}
  void Update(std::string_view stage, double fraction) override {
    if (callback_) callback_(stage, fraction);
  }

 private:
  Callback callback_;
};

// The listener for a terminal. The destructor clears the line.
std::unique_ptr<Progress> MakeTerminalProgress();

}  // namespace spillway

#endif  // SPILLWAY_BASE_PROGRESS_H_
