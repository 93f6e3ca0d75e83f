// How many of the vendor's objects we hold: created minus freed, by kind.
//
// Counted where the vendor's create and free functions are called. An object
// whose free function reports an error stays counted: it leaked. Tests expect
// all zeros after every path, failing ones too.

#ifndef SPILLWAY_QNN_API_HANDLE_COUNTS_H_
#define SPILLWAY_QNN_API_HANDLE_COUNTS_H_

#include <cstdint>
#include <string>

namespace spillway::qnn {

enum class HandleKind {
  kLog,
  kBackend,
  kDevice,
  kContext,
  kProfile,
  kSystemContext,
  kPowerConfig,
  kMemory,
};
inline constexpr int kHandleKinds = 8;

// "log", "backend", ...
const char* HandleKindName(HandleKind kind);

struct HandleCounts {
  int64_t by_kind[kHandleKinds] = {};
  int64_t operator[](HandleKind kind) const { return by_kind[static_cast<int>(kind)]; }
  int64_t total() const;
  // "none", or "context 1, profile 2".
  std::string ToString() const;
};

// Of the whole process, all libraries together. Thread-safe.
HandleCounts CountHandles();

// For the classes that own handles.
void CountCreated(HandleKind kind);
void CountFreed(HandleKind kind);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_HANDLE_COUNTS_H_
