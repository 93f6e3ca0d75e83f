#include "qnn/api/handle_counts.h"

#include <atomic>

namespace spillway::qnn {
namespace {

std::atomic<int64_t> live[kHandleKinds];

}  // namespace

const char* HandleKindName(HandleKind kind) {
  switch (kind) {
    case HandleKind::kLog:
      return "log";
    case HandleKind::kBackend:
      return "backend";
    case HandleKind::kDevice:
      return "device";
    case HandleKind::kContext:
      return "context";
    case HandleKind::kProfile:
      return "profile";
    case HandleKind::kSystemContext:
      return "system context";
    case HandleKind::kPowerConfig:
      return "power config";
    case HandleKind::kMemory:
      return "memory";
  }
  return "unknown";
}

int64_t HandleCounts::total() const {
  int64_t sum = 0;
  for (const int64_t count : by_kind) sum += count;
  return sum;
}

std::string HandleCounts::ToString() const {
  std::string text;
  for (int kind = 0; kind < kHandleKinds; ++kind) {
    if (by_kind[kind] == 0) continue;
    if (!text.empty()) text += ", ";
    text += HandleKindName(static_cast<HandleKind>(kind));
    text += " " + std::to_string(by_kind[kind]);
  }
  return text.empty() ? "none" : text;
}

HandleCounts CountHandles() {
  HandleCounts counts;
  for (int kind = 0; kind < kHandleKinds; ++kind) counts.by_kind[kind] = live[kind].load();
  return counts;
}

void CountCreated(HandleKind kind) { ++live[static_cast<int>(kind)]; }
void CountFreed(HandleKind kind) { --live[static_cast<int>(kind)]; }

}  // namespace spillway::qnn
