#include "qnn/api/vendor_log.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"

namespace spillway::qnn {

struct VendorLogState {
  void AddText(abi::LogLevel level, std::string_view text);
  void AddLine(abi::LogLevel level, std::string_view line);

  mutable std::mutex mutex;
  LogSink sink;
  LogReader reader;
  std::function<void(std::string_view, double)> progress;
  double last_fraction = -1;
  uint64_t problems_seen = 0;
  std::deque<std::string> problems;  // the last kProblems of problems_seen
};

namespace {

constexpr size_t kProblems = 16;

// The state that a callback function serves.
struct Slot {
  std::mutex mutex;
  bool taken = false;
  std::shared_ptr<VendorLogState> state;
};

// Never destroyed: the vendor may log while the process ends.
Slot& SlotAt(int index) {
  static Slot* const kSlots = new Slot[VendorLog::kMost];
  return kSlots[index];
}

// One vendor message; formatted here because the arguments die with the call.
void Receive(Slot& slot, abi::LogLevel level, const char* format, va_list arguments) {
  if (format == nullptr) return;
  char buffer[1024];
  va_list copy;
  va_copy(copy, arguments);
  const int length = std::vsnprintf(buffer, sizeof(buffer), format, arguments);
  std::string large;
  std::string_view text;
  if (length >= static_cast<int>(sizeof(buffer))) {
    large.resize(static_cast<size_t>(length) + 1);
    std::vsnprintf(large.data(), large.size(), format, copy);
    text = std::string_view(large).substr(0, static_cast<size_t>(length));
  } else if (length > 0) {
    text = std::string_view(buffer, static_cast<size_t>(length));
  }
  va_end(copy);
  std::shared_ptr<VendorLogState> state;
  {
    const std::lock_guard lock(slot.mutex);
    state = slot.state;
  }
  if (state != nullptr) state->AddText(level, text);
}

template <int kSlot>
void Callback(const char* format, abi::LogLevel level, uint64_t, va_list arguments) {
  Receive(SlotAt(kSlot), level, format, arguments);
}

template <int... kSlots>
abi::LogCallback CallbackOf(int slot, std::integer_sequence<int, kSlots...>) {
  static constexpr abi::LogCallback kCallbacks[] = {Callback<kSlots>...};
  return kCallbacks[slot];
}

int TakeSlot() {
  for (int i = 0; i < VendorLog::kMost; ++i) {
    const std::lock_guard lock(SlotAt(i).mutex);
    if (SlotAt(i).taken) continue;
    SlotAt(i).taken = true;
    return i;
  }
  return -1;
}

}  // namespace

void VendorLogState::AddText(abi::LogLevel level, std::string_view text) {
  const std::lock_guard lock(mutex);
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    const std::string_view line = text.substr(0, end);
    if (!line.empty()) AddLine(level, line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

void VendorLogState::AddLine(abi::LogLevel level, std::string_view line) {
  reader.AddLine(line);
  if (level == abi::kLogError && !LogReader::IsHarmless(line)) {
    ++problems_seen;
    problems.emplace_back(LogReader::StripTag(line));
    if (problems.size() > kProblems) problems.pop_front();
  }
  if (sink) sink(level, LogReader::StripTag(line));
  if (progress && reader.prepare_fraction() != last_fraction) {
    last_fraction = reader.prepare_fraction();
    progress(reader.stage(), last_fraction);
  }
}

VendorLog::VendorLog(std::shared_ptr<const Library> library, std::shared_ptr<VendorLogState> state)
    : library_(std::move(library)), state_(std::move(state)) {}

Result<std::shared_ptr<VendorLog>> VendorLog::Create(std::shared_ptr<const Library> library,
                                                     abi::LogLevel level, LogSink sink) {
  auto state = std::make_shared<VendorLogState>();
  state->sink = std::move(sink);
  std::shared_ptr<VendorLog> log(new VendorLog(std::move(library), state));
  log->slot_ = TakeSlot();
  if (log->slot_ < 0) {
    return ResourceExhaustedError("too many vendor logs at once: the process has room for " +
                                  std::to_string(kMost) + ". Free one first.");
  }
  {
    Slot& slot = SlotAt(log->slot_);
    const std::lock_guard lock(slot.mutex);
    slot.state = state;
  }
  const abi::LogCallback callback =
      CallbackOf(log->slot_, std::make_integer_sequence<int, kMost>());
  const abi::Error error = log->library().fn().log_create(callback, level, &log->handle_);
  if (error != 0) {
    log->handle_ = nullptr;
    return VendorFailure("creating the vendor's log", error, {});
  }
  CountCreated(HandleKind::kLog);
  return log;
}

VendorLog::~VendorLog() {
  if (handle_ != nullptr) {
    const abi::Error error = library().fn().log_free(handle_);
    if (error == 0) {
      CountFreed(HandleKind::kLog);
    } else {
      Log(LogLevel::kWarning, "freeing the vendor's log: {}", DescribeError(error));
    }
  }
  if (slot_ < 0) return;
  const std::lock_guard lock(SlotAt(slot_).mutex);
  SlotAt(slot_).state.reset();
  SlotAt(slot_).taken = false;
}

LogFacts VendorLog::facts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reader.facts();
}

void VendorLog::BeginPrepare(std::string_view graph,
                             std::function<void(std::string_view, double)> progress) {
  const std::lock_guard lock(state_->mutex);
  state_->reader.BeginPrepare(graph);
  state_->progress = std::move(progress);
  state_->last_fraction = 0;
}

void VendorLog::EndPrepare() {
  const std::lock_guard lock(state_->mutex);
  state_->progress = {};
}

void VendorLog::AddPrintedLine(std::string_view line) {
  state_->AddText(abi::kLogInfo, line);
}

uint64_t VendorLog::Mark() const {
  const std::lock_guard lock(state_->mutex);
  return state_->problems_seen;
}

std::vector<std::string> VendorLog::ProblemsSince(uint64_t mark) const {
  const std::lock_guard lock(state_->mutex);
  const uint64_t first_kept = state_->problems_seen - state_->problems.size();
  const size_t skip = mark > first_kept ? static_cast<size_t>(mark - first_kept) : 0;
  std::vector<std::string> lines;
  for (size_t i = skip; i < state_->problems.size(); ++i) {
    const std::string& line = state_->problems[i];
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

}  // namespace spillway::qnn
