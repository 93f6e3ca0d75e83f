// Status and Result: how every Spillway function reports failure.
//
// No function of Spillway throws. A function that can fail returns Status, or
// Result<T> when it also has a value. A message is one or more sentences that
// name the file or field, what was found, what was expected and, where that
// helps, what to do next. Both types are cheap to move and safe to share
// between threads when const.

#ifndef SPILLWAY_STATUS_H_
#define SPILLWAY_STATUS_H_

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace spillway {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // the caller's options or arguments are wrong
  kNotFound,            // a file, tensor, graph or library is not there
  kCorruptData,         // a file is damaged or not what it claims to be
  kUnsupported,         // well-formed, but Spillway or the target cannot do it
  kFailedPrecondition,  // the call is right but not now (order, state)
  kIo,                  // the operating system refused a read or a write
  kResourceExhausted,   // out of memory, disk, context length
  kVendor,              // the vendor library returned an error
  kVendorCrash,         // the vendor library crashed; its process is gone
  kTimeout,             // a deadline passed
  kCancelled,           // the user asked to stop
  kCheckFailed,         // a verification ran and its limits were not met
  kInternal,            // a bug in Spillway
};

// The code's name in words, like "invalid argument".
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "code name: message", or "ok".
  std::string ToString() const;

  // The same code with "context: " put before the message; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgumentError(std::string message);
Status NotFoundError(std::string message);
Status CorruptDataError(std::string message);
Status UnsupportedError(std::string message);
Status FailedPreconditionError(std::string message);
Status IoError(std::string message);
Status ResourceExhaustedError(std::string message);
Status VendorError(std::string message);
Status VendorCrashError(std::string message);
Status TimeoutError(std::string message);
Status CancelledError(std::string message);
Status CheckFailedError(std::string message);
Status InternalError(std::string message);

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Only when ok().
  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace spillway

#define SPILLWAY_CONCAT_INNER(a, b) a##b
#define SPILLWAY_CONCAT(a, b) SPILLWAY_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr`, a Status, is not ok.
#define SPILLWAY_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    ::spillway::Status spillway_status_ = (expr);        \
    if (!spillway_status_.ok()) return spillway_status_; \
  } while (false)

// SPILLWAY_ASSIGN_OR_RETURN(auto x, F()): x = the value of F(), or return why
// there is none.
#define SPILLWAY_ASSIGN_OR_RETURN(lhs, expr) \
  SPILLWAY_ASSIGN_OR_RETURN_INNER(SPILLWAY_CONCAT(spillway_result_, __LINE__), lhs, expr)
#define SPILLWAY_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                    \
  if (!tmp.ok()) return tmp.status();                   \
  lhs = std::move(tmp).value()

#endif  // SPILLWAY_STATUS_H_
