#include "qnn/api/profile_reader.h"

#include <utility>

#include "base/log.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"

namespace spillway::qnn {
namespace {

constexpr size_t kMostEvents = 1'000'000;
constexpr int kMostDepth = 16;

// The vendor's event numbers that we read.
enum EventType : uint32_t {
  kExecute = 400,
  kNode = 404,
  kSimCycles = 2006,
  kSimLowerCycles = 2007,
  kSimUpperCycles = 2008,
  kInputFill = 2011,
  kIntermediateFill = 2012,
  kIntermediateSpill = 2013,
  kInterHtpFill = 2014,
  kInterHtpSpill = 2015,
  kOutputSpill = 2016,
  kMissingCostOps = 2017,
  kSimMicroseconds = 2019,
  kSimLowerMicroseconds = 2020,
  kSimUpperMicroseconds = 2021,
  kAcceleratorCycles = 3003,
  kAcceleratorMicroseconds = 3004,
  kCriticalCycles = 6001,  // in place of 3003 at the linting level
  kHvxThreads = 8001,
};

Status ReadLevel(const abi::Functions& fn, const abi::EventId* ids, uint32_t count, int depth,
                 size_t* budget, std::vector<ProfileEvent>* events) {
  if (ids == nullptr || depth == kMostDepth) return OkStatus();
  for (uint32_t i = 0; i<count&& * budget> 0; ++i) {
    --*budget;
    abi::EventData data = {};
    const abi::Error error = fn.profile_get_event_data(ids[i], &data);
    if (error != 0) return VendorFailure("reading a profile event", error, {});
    ProfileEvent& event = events->emplace_back();
    event.type = data.type;
    event.unit = data.unit;
    event.value = data.value;
    if (data.identifier != nullptr) event.identifier = data.identifier;
    const abi::EventId* children = nullptr;
    uint32_t num_children = 0;
    const abi::Error sub_error = fn.profile_get_sub_events(ids[i], &children, &num_children);
    if (sub_error != 0) return VendorFailure("reading a profile event's parts", sub_error, {});
    SPILLWAY_RETURN_IF_ERROR(
        ReadLevel(fn, children, num_children, depth + 1, budget, &event.children));
  }
  return OkStatus();
}

// Sums the events of `type` in all trees: several HTPs report their bytes apart.
uint64_t SumOf(const std::vector<ProfileEvent>& events, uint32_t type) {
  uint64_t sum = 0;
  for (const ProfileEvent& event : events) {
    if (event.type == type) sum += event.value;
    sum += SumOf(event.children, type);
  }
  return sum;
}

uint64_t ValueOf(const std::vector<ProfileEvent>& events, uint32_t type) {
  const ProfileEvent* event = FindEvent(events, type);
  return event == nullptr ? 0 : event->value;
}

std::optional<uint64_t> OptionalValueOf(const std::vector<ProfileEvent>& events, uint32_t type) {
  const ProfileEvent* event = FindEvent(events, type);
  if (event == nullptr) return std::nullopt;
  return event->value;
}

void CollectNodes(const std::vector<ProfileEvent>& events, std::vector<ProfileEvent>* nodes) {
  for (const ProfileEvent& event : events) {
    if (event.type == kNode) nodes->push_back(event);
    CollectNodes(event.children, nodes);
  }
}

}  // namespace

const ProfileEvent* FindEvent(const std::vector<ProfileEvent>& events, uint32_t type) {
  for (const ProfileEvent& event : events) {
    if (event.type == type) return &event;
    const ProfileEvent* found = FindEvent(event.children, type);
    if (found != nullptr) return found;
  }
  return nullptr;
}

std::optional<GraphEstimates> ReadEstimates(const std::vector<ProfileEvent>& events) {
  if (FindEvent(events, kSimCycles) == nullptr) return std::nullopt;
  GraphEstimates estimates;
  estimates.cycles = {ValueOf(events, kSimCycles), ValueOf(events, kSimLowerCycles),
                      ValueOf(events, kSimUpperCycles)};
  estimates.microseconds = {ValueOf(events, kSimMicroseconds),
                            ValueOf(events, kSimLowerMicroseconds),
                            ValueOf(events, kSimUpperMicroseconds)};
  estimates.input_fill_bytes = SumOf(events, kInputFill);
  estimates.intermediate_fill_bytes = SumOf(events, kIntermediateFill);
  estimates.intermediate_spill_bytes = SumOf(events, kIntermediateSpill);
  estimates.inter_htp_fill_bytes = SumOf(events, kInterHtpFill);
  estimates.inter_htp_spill_bytes = SumOf(events, kInterHtpSpill);
  estimates.output_spill_bytes = SumOf(events, kOutputSpill);
  estimates.missing_cost_ops = SumOf(events, kMissingCostOps);
  return estimates;
}

ExecuteTimes ReadExecuteTimes(const std::vector<ProfileEvent>& events) {
  ExecuteTimes times;
  times.total_us = OptionalValueOf(events, kExecute);
  times.accelerator_us = OptionalValueOf(events, kAcceleratorMicroseconds);
  times.accelerator_cycles = OptionalValueOf(events, kAcceleratorCycles);
  if (!times.accelerator_cycles) {
    times.accelerator_cycles = OptionalValueOf(events, kCriticalCycles);
  }
  times.hvx_threads = OptionalValueOf(events, kHvxThreads);
  CollectNodes(events, &times.nodes);
  return times;
}

Result<Profile> Profile::Create(std::shared_ptr<VendorLog> log, abi::Handle backend,
                                uint32_t level) {
  Profile profile;
  profile.log_ = std::move(log);
  if (level == 0) return profile;
  const uint64_t mark = profile.log_->Mark();
  const abi::Error error =
      profile.log_->library().fn().profile_create(backend, level, &profile.handle_);
  if (error != 0) {
    profile.handle_ = nullptr;
    return VendorFailure("creating a profile of level " + std::to_string(level), error,
                         profile.log_->ProblemsSince(mark));
  }
  CountCreated(HandleKind::kProfile);
  return profile;
}

Profile::Profile(Profile&& other) noexcept
    : log_(std::move(other.log_)), handle_(std::exchange(other.handle_, nullptr)) {}

Profile::~Profile() {
  if (handle_ == nullptr) return;
  const abi::Error error = log_->library().fn().profile_free(handle_);
  if (error == 0) {
    CountFreed(HandleKind::kProfile);
  } else {
    Log(LogLevel::kWarning, "freeing a vendor profile: {}", DescribeError(error));
  }
}

Result<std::vector<ProfileEvent>> Profile::ReadEvents() const {
  std::vector<ProfileEvent> events;
  if (handle_ == nullptr) return events;
  const abi::Functions& fn = log_->library().fn();
  const abi::EventId* ids = nullptr;
  uint32_t count = 0;
  const abi::Error error = fn.profile_get_events(handle_, &ids, &count);
  if (error != 0) return VendorFailure("reading a profile", error, {});
  size_t budget = kMostEvents;
  SPILLWAY_RETURN_IF_ERROR(ReadLevel(fn, ids, count, 0, &budget, &events));
  return events;
}

}  // namespace spillway::qnn
