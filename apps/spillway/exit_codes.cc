#include "exit_codes.h"

#include <fmt/format.h>

#include <iterator>

namespace spillway::cli {
namespace {

struct ExitCode {
  int code;
  const char* meaning;
};

constexpr ExitCode kExitCodes[] = {
    {kExitOk, "success"},
    {kExitBug, "a bug in spillway"},
    {kExitUsage, "wrong arguments or options, also a prompt that is too long"},
    {kExitInput, "an input file is missing, damaged or not supported"},
    {kExitVendor, "a vendor library is missing, failed or crashed"},
    {kExitSystem, "the system refused: input or output, disk, memory"},
    {kExitTimeout, "a deadline passed"},
    {kExitCheckFailed, "a check ran and its limits were not met (verify)"},
    {kExitInterrupted, "interrupted (Ctrl-C)"},
};

struct Row {
  StatusCode status;
  int exit_code;
  const char* name;
};

constexpr Row kRows[] = {
    {StatusCode::kOk, kExitOk, "ok"},
    {StatusCode::kInvalidArgument, kExitUsage, "invalid_argument"},
    {StatusCode::kFailedPrecondition, kExitUsage, "failed_precondition"},
    {StatusCode::kNotFound, kExitInput, "not_found"},
    {StatusCode::kCorruptData, kExitInput, "corrupt_data"},
    {StatusCode::kUnsupported, kExitInput, "unsupported"},
    {StatusCode::kVendor, kExitVendor, "vendor"},
    {StatusCode::kVendorCrash, kExitVendor, "vendor_crash"},
    {StatusCode::kIo, kExitSystem, "io"},
    {StatusCode::kResourceExhausted, kExitSystem, "resource_exhausted"},
    {StatusCode::kTimeout, kExitTimeout, "timeout"},
    {StatusCode::kCheckFailed, kExitCheckFailed, "check_failed"},
    {StatusCode::kCancelled, kExitInterrupted, "cancelled"},
    {StatusCode::kInternal, kExitBug, "internal"},
};

const Row& RowOf(StatusCode code) {
  for (const Row& row : kRows) {
    if (row.status == code) return row;
  }
  return kRows[std::size(kRows) - 1];
}

}  // namespace

int ExitCodeOf(StatusCode code) { return RowOf(code).exit_code; }

std::string_view ErrorCodeName(StatusCode code) { return RowOf(code).name; }

std::string ExitCodeTable() {
  std::string table = "Exit codes:\n";
  for (const ExitCode& exit_code : kExitCodes) {
    table += fmt::format("  {:<5}{}\n", exit_code.code, exit_code.meaning);
  }
  return table;
}

}  // namespace spillway::cli
