#include "qnn/api/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace spillway::qnn {
namespace {

// Sorted by code. The advice of codes that were met while running the libraries
// says what they turned out to mean.
constexpr ErrorInfo kErrors[] = {
    {1000, "not supported on this platform",
     "the x86-64 simulator lacks many device functions; among them it cannot load a context "
     "binary made with weight sharing. Compile a plain context for the simulator, or run this "
     "on a device"},
    {1002, "out of memory, or graph preparation failed",
     "the vendor uses this number for every graph that its compiler cannot prepare: an operation "
     "with unusual data types or shapes, more HTP cores than the SoC has, or too little memory"},
    {1003, "system error", "an operating system call inside the vendor library failed"},
    {1004, "invalid argument", ""},
    {1005, "operation not permitted now",
     "the object is in the wrong state, for example asking a loaded context for its binary"},
    {1006, "platform not supported",
     "the library was built for another platform than this machine"},
    {1007, "communication with the DSP failed",
     "check that the DSP libraries (libQnnHtpV*Skel.so) are on ADSP_LIBRARY_PATH and of the same "
     "version"},
    {1008, "incompatible libraries", "use libraries of one QAIRT release on host and DSP"},
    {1009, "the DSP libraries could not be loaded",
     "put libQnnHtpV*Stub.so and libQnnHtpV*Skel.so beside libQnnHtp.so and on "
     "ADSP_LIBRARY_PATH"},
    {1010, "a resource is not available", "another process may hold the HTP"},
    {1011, "fatal communication error with the DSP",
     "the DSP process died; free everything and start again"},
    {1100, "general error",
     "at execution this is often an index outside of a Gather's table; elsewhere the object is in "
     "the wrong state"},
    {2000, "unknown capability key", ""},
    {3000, "operation library already initialised", ""},
    {3001, "operation library not initialised", ""},
    {3002, "invalid operation library handle", ""},
    {3100, "invalid operation library infrastructure", ""},
    {3101, "invalid operation library info", ""},
    {3110, "operation refused",
     "the target does not support this operation with these data types, ranks or parameters"},
    {3200, "invalid argument to an operation library", ""},
    {4000, "backend cannot initialise", ""},
    {4002, "backend termination failed", ""},
    {4003, "not supported by the backend",
     "on x86-64 the simulator cannot load a context made with the SLC allocator"},
    {4004, "invalid backend argument", ""},
    {4005, "unknown operation or operation library",
     "no operation of this type exists in package qti.aisw; check the type's name"},
    {4006, "operation library has no provider", ""},
    {4007, "operation library registration failed", ""},
    {4008, "operation library version not supported", ""},
    {4009, "operation library registered twice", ""},
    {4010, "inconsistent backend configuration", ""},
    {4011, "invalid backend handle", ""},
    {4012, "invalid backend configuration", ""},
    {5000, "invalid context argument",
     "for a context binary: it is empty, or was made with a newer QAIRT release than this "
     "library. Load it with the same or a newer release, or compile it again with the oldest "
     "release that a target uses"},
    {5001, "context does not exist", ""},
    {5002, "invalid context handle", ""},
    {5003, "context not finalised", "finalise every graph of the context first"},
    {5004, "context binary version mismatch", "compile it again with this library"},
    {5005, "context could not be created from the binary",
     "the binary is damaged, made for another SoC, or the device has too little memory"},
    {5006, "context binary size not available", ""},
    {5007, "context binary not available", ""},
    {5008, "context binary configuration mismatch", "compile it again for this SoC"},
    {5009, "profile could not be attached to the context", ""},
    {5010, "context option not supported",
     "x86-64 refuses among others the multi-context (shared spill-fill) option; leave "
     "multi-contexts off for the simulator"},
    {5011, "context binary is not optimal for this device", "compile it again for this SoC"},
    {5012, "aborted", ""},
    {5013, "timed out", ""},
    {5014, "invalid incremental buffer", ""},
    {6000, "invalid graph argument",
     "an option value out of range, a missing operation parameter, or no inputs or outputs"},
    {6001, "invalid graph handle", "the graph's context was freed"},
    {6002, "graph does not exist", ""},
    {6003, "invalid graph name",
     "no graph of this name in the context, or the name is used already. A context made with the "
     "SLC allocator loads on x86-64 without any graph: compile a plain context for the simulator"},
    {6004, "invalid tensor", "a tensor id that the graph does not know, or a null buffer"},
    {6005, "invalid operation",
     "the graph cannot take this node: check its data types, encodings and parameters"},
    {6006, "profile could not be attached to the graph", ""},
    {6007, "node is not connected", ""},
    {6020, "graph could not be created", ""},
    {6021, "graph optimisation failed", ""},
    {6022, "graph could not be finalised", "the graph is empty, or its preparation failed"},
    {6023, "graph not finalised", ""},
    {6024, "graph already finalised", ""},
    {6025, "too many executions in flight", ""},
    {6030, "signal in use", ""},
    {6031, "aborted", ""},
    {6032, "profile in use", ""},
    {6033, "timed out", ""},
    {6034, "subgraph error", ""},
    {6035, "graph is disabled", ""},
    {6036, "shape of a dynamic tensor", ""},
    {6037, "sparsity of a tensor", ""},
    {6038, "ended early", ""},
    {6039, "invalid context", ""},
    {7000, "tensor error", ""},
    {7001, "invalid tensor handle", ""},
    {7002, "tensor does not exist", ""},
    {7003, "tensor exists already", "two tensors of the graph have one name"},
    {7004, "invalid tensor parameter",
     "a static tensor without data, more than 5 dimensions, or a data type that HTP does not "
     "take (4-bit values are stored one per byte)"},
    {7005, "unsupported tensor parameter", ""},
    {7006, "tensor name hash collision", "rename the tensor"},
    {7007, "incompatible tensor update", ""},
    {8000, "invalid memory argument", ""},
    {8001, "invalid memory handle", ""},
    {8002, "memory registered already", ""},
    {8003, "memory mapping failed", ""},
    {8004, "invalid memory shape", ""},
    {8005, "unsupported memory type", ""},
    {9000, "signal in use", ""},
    {9001, "signal idle", ""},
    {9002, "invalid signal argument", ""},
    {9003, "invalid signal handle", ""},
    {9004, "signal timed out", ""},
    {9005, "incompatible signal type", ""},
    {10000, "invalid argument to the error function", ""},
    {10001, "unknown error number", ""},
    {11002, "log could not be initialised", ""},
    {11003, "invalid log argument", ""},
    {11004, "invalid log handle", ""},
    {12000, "invalid profile handle", ""},
    {12001, "profile in use", ""},
    {12002, "incompatible profile event", ""},
    {13000, "invalid performance handle", ""},
    {13001, "invalid performance setting", ""},
    {13002, "unsupported performance setting", ""},
    {13003, "transport error while setting performance", ""},
    {13004, "performance setting not supported on this SoC", ""},
    {13005, "out of memory while setting performance", ""},
    {13006, "performance setting failed", ""},
    {14000, "invalid device handle", ""},
    {14001, "invalid device configuration",
     "the library does not know this SoC number or device option; use another SoC or a newer "
     "QAIRT release"},
    {14002, "hardware not available", ""},
    {14003, "device still has contexts", ""},
    {15000, "invalid global configuration", ""},
    {30000, "invalid system handle", ""},
    {30001, "invalid argument to the system library",
     "for a context binary: it is empty or not a context binary"},
    {30002, "system library operation failed", ""},
    {30010, "malformed context binary",
     "the file is cut short, has bytes behind its end, or is not a context binary; its exact "
     "length is checked. Copy or compile it again"},
    {60000, "interface error", ""},
};

std::string_view RangeName(uint32_t code) {
  struct Range {
    uint32_t first;
    std::string_view name;
  };
  static constexpr Range kRanges[] = {{1000, "common"},
                                      {2000, "property"},
                                      {3000, "operation package"},
                                      {4000, "backend"},
                                      {5000, "context"},
                                      {6000, "graph"},
                                      {7000, "tensor"},
                                      {8000, "memory"},
                                      {9000, "signal"},
                                      {10000, "error"},
                                      {11000, "log"},
                                      {12000, "profile"},
                                      {13000, "performance"},
                                      {14000, "device"},
                                      {15000, "global configuration"},
                                      {16000, ""},
                                      {30000, "system"},
                                      {50000, ""},
                                      {60000, "interface"},
                                      {61000, ""}};
  std::string_view name;
  for (const Range& range : kRanges) {
    if (code >= range.first) name = range.name;
  }
  return name;
}

}  // namespace

const ErrorInfo* FindError(uint32_t code) {
  const auto* end = std::end(kErrors);
  const auto* found =
      std::lower_bound(std::begin(kErrors), end, code,
                       [](const ErrorInfo& info, uint32_t value) { return info.code < value; });
  return found != end && found->code == code ? found : nullptr;
}

std::string DescribeError(abi::Error error) {
  const auto code = static_cast<uint32_t>(error & 0xffff);
  std::string text = error > 0xffff
                         ? fmt::format("error {0} (0x{0:x}, full value 0x{1:x})", code, error)
                         : fmt::format("error {0} (0x{0:x})", code);
  if (const ErrorInfo* info = FindError(code)) return fmt::format("{}, {}", text, info->words);
  const std::string_view range = RangeName(code);
  return range.empty() ? text + ", an unknown number"
                       : fmt::format("{}, an unknown {} error", text, range);
}

Status VendorFailure(std::string_view step, abi::Error error,
                     const std::vector<std::string>& log_lines, std::string_view advice) {
  std::string message = fmt::format("{} failed: vendor {}.", step, DescribeError(error));
  if (advice.empty()) {
    const ErrorInfo* info = FindError(static_cast<uint32_t>(error & 0xffff));
    if (info != nullptr) advice = info->advice;
  }
  if (!advice.empty()) message += fmt::format(" Likely: {}.", advice);
  constexpr size_t kLines = 6;  // the first ones are the nearest to the cause
  if (!log_lines.empty()) {
    message += " Vendor's log:";
    for (size_t i = 0; i < log_lines.size() && i < kLines; ++i) {
      message += fmt::format("{} \"{}\"", i == 0 ? "" : ";", log_lines[i]);
    }
    message += ".";
  }
  return VendorError(std::move(message));
}

}  // namespace spillway::qnn
