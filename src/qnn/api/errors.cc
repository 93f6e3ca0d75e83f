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
     "with unusual data types or shapes, more HTP cores than the SoC has, or too little memory. A "
     "device also answers it for a "
     "context of more than about 4 GB: compile more shards"},
    {1003, "system error", "an operating system call inside the vendor library failed"},
    {1004, "invalid argument",
     "an argument that this release does not know; use a QAIRT release that was tested (2.47 to "
     "2.51)"},
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
    {2000, "unknown capability key",
     "this release does not know the question; use a newer QAIRT release"},
    {3000, "operation library already initialised",
     "the op package was registered before; register it once a process"},
    {3001, "operation library not initialised",
     "the op package was not registered, or its initialisation failed; see the lines before"},
    {3002, "invalid operation library handle",
     "the op package was unloaded while it was in use; register it again"},
    {3100, "invalid operation library infrastructure",
     "the op package was built for another QAIRT release; build it again with this one"},
    {3101, "invalid operation library info",
     "the op package describes its operations wrongly; build it again with this release's headers"},
    {3110, "operation refused",
     "the target does not support this operation with these data types, ranks or parameters"},
    {3200, "invalid argument to an operation library",
     "the op package got a parameter that it does not know; check the operation's parameters"},
    {4000, "backend cannot initialise",
     "another library of the vendor may be loaded, or the DSP is not there; see the vendor's log"},
    {4002, "backend termination failed",
     "objects of the backend are still alive; free contexts and devices first"},
    {4003, "not supported by the backend",
     "on x86-64 the simulator cannot load a context made with the SLC allocator"},
    {4004, "invalid backend argument",
     "an argument of the backend is wrong; use a QAIRT release that was tested (2.47 to 2.51)"},
    {4005, "unknown operation or operation library",
     "no operation of this type exists in package qti.aisw; check the type's name"},
    {4006, "operation library has no provider",
     "the op package exports no such function; check the interface provider's name"},
    {4007, "operation library registration failed",
     "the op package refused to be registered; check its target and that it is for this machine"},
    {4008, "operation library version not supported",
     "the op package was built for another QAIRT release; build it again with this one"},
    {4009, "operation library registered twice", "give each op package once"},
    {4010, "inconsistent backend configuration", "two options exclude each other; leave one out"},
    {4011, "invalid backend handle", "the backend was freed before this call"},
    {4012, "invalid backend configuration",
     "this release does not know the backend option; use a newer QAIRT release"},
    {5000, "invalid context argument",
     "for a context binary: it is empty, or was made with a newer QAIRT release than this "
     "library. Load it with the same or a newer release, or compile it again with the oldest "
     "release that a target uses"},
    {5001, "context does not exist", "the context was freed before this call"},
    {5002, "invalid context handle", "the context was freed before this call, or freed twice"},
    {5003, "context not finalised", "finalise every graph of the context first"},
    {5004, "context binary version mismatch", "compile it again with this library"},
    {5005, "context could not be created from the binary",
     "the binary is damaged, made for another SoC, or the device has too little memory"},
    {5006, "context binary size not available",
     "finalise every graph of the context, then ask again"},
    {5007, "context binary not available",
     "the buffer is smaller than the binary, or the preparation failed before"},
    {5008, "context binary configuration mismatch", "compile it again for this SoC"},
    {5009, "profile could not be attached to the context",
     "the profile belongs to another backend, or its level is not supported; run without a "
     "profile"},
    {5010, "context option not supported",
     "x86-64 refuses among others the multi-context (shared spill-fill) option; leave "
     "multi-contexts off for the simulator"},
    {5011, "context binary is not optimal for this device", "compile it again for this SoC"},
    {5012, "aborted", "another thread stopped the call; start it again"},
    {5013, "timed out",
     "the device took longer than the time allowed; try again or raise the limit"},
    {5014, "invalid incremental buffer",
     "the buffer is not one of this context's incremental binary"},
    {6000, "invalid graph argument",
     "an option value out of range, a missing operation parameter, or no inputs or outputs"},
    {6001, "invalid graph handle", "the graph's context was freed"},
    {6002, "graph does not exist",
     "the graph's context holds no such graph; inspect the context binary for its graphs"},
    {6003, "invalid graph name",
     "no graph of this name in the context, or the name is used already. A context made with the "
     "SLC allocator loads on x86-64 without any graph: compile a plain context for the simulator"},
    {6004, "invalid tensor", "a tensor id that the graph does not know, or a null buffer"},
    {6005, "invalid operation",
     "the graph cannot take this node: check its data types, encodings and parameters"},
    {6006, "profile could not be attached to the graph",
     "the profile belongs to another backend, or its level is not supported; run without a "
     "profile"},
    {6007, "node is not connected",
     "an operation uses a tensor that none before it makes; add operations in execution order"},
    {6020, "graph could not be created",
     "the options of the graph do not fit this SoC, or memory is short"},
    {6021, "graph optimisation failed",
     "try a lower optimisation level, and see the vendor's log for the operation"},
    {6022, "graph could not be finalised", "the graph is empty, or its preparation failed"},
    {6023, "graph not finalised", "finalise the graph before it runs"},
    {6024, "graph already finalised", "a finalised graph takes no more tensors and operations"},
    {6025, "too many executions in flight", "wait for an execution that is in flight"},
    {6030, "signal in use", "a signal serves one call at a time"},
    {6031, "aborted", "another thread stopped the call; start it again"},
    {6032, "profile in use", "a profile serves one call at a time"},
    {6033, "timed out",
     "the device took longer than the time allowed; try again or raise the limit"},
    {6034, "subgraph error", "a subgraph of the operation is wrong; HTP takes none"},
    {6035, "graph is disabled",
     "the graph was disabled when the context was loaded; enable it in the context's options"},
    {6036, "shape of a dynamic tensor", "HTP takes fixed shapes only"},
    {6037, "sparsity of a tensor", "HTP takes dense tensors only here"},
    {6038, "ended early", "the graph ended before its last operation, as it was asked to"},
    {6039, "invalid context", "the context was freed before this call"},
    {7000, "tensor error", "the tensor's description is wrong; see the vendor's log"},
    {7001, "invalid tensor handle", "the tensor belongs to another graph"},
    {7002, "tensor does not exist", "the tensor was never created in this graph"},
    {7003, "tensor exists already", "two tensors of the graph have one name"},
    {7004, "invalid tensor parameter",
     "a static tensor without data, more than 5 dimensions, or a data type that HTP does not "
     "take (4-bit values are stored one per byte)"},
    {7005, "unsupported tensor parameter",
     "HTP does not take this type, encoding or shape; see docs/operations.md"},
    {7006, "tensor name hash collision", "rename the tensor"},
    {7007, "incompatible tensor update", "an update may change values only, not type or shape"},
    {8000, "invalid memory argument", "the shared buffer's description is wrong"},
    {8001, "invalid memory handle", "the shared buffer was freed before this call"},
    {8002, "memory registered already", "a shared buffer is registered once a context"},
    {8003, "memory mapping failed",
     "the DSP could not map the buffer: it must come from the DSP's own allocator (rpcmem)"},
    {8004, "invalid memory shape", "the shared buffer is smaller than the tensor"},
    {8005, "unsupported memory type",
     "this machine shares no such memory with the DSP; use plain buffers"},
    {9000, "signal in use", "a signal serves one call at a time"},
    {9001, "signal idle", "no call uses the signal"},
    {9002, "invalid signal argument", "the signal's options are wrong"},
    {9003, "invalid signal handle", "the signal was freed before this call"},
    {9004, "signal timed out",
     "the device took longer than the time allowed; try again or raise the limit"},
    {9005, "incompatible signal type", "the signal is of a kind that this call does not take"},
    {10000, "invalid argument to the error function",
     "a bug of the caller: report it with the log"},
    {10001, "unknown error number",
     "the library has no text for this number; see docs.qualcomm.com for its release"},
    {11002, "log could not be initialised",
     "the vendor's log was started twice; free the first one"},
    {11003, "invalid log argument", "the log level is none of 1 to 5"},
    {11004, "invalid log handle", "the log was freed before this call"},
    {12000, "invalid profile handle", "the profile was freed before this call"},
    {12001, "profile in use", "a profile serves one call at a time"},
    {12002, "incompatible profile event", "the event is of another profile"},
    {13000, "invalid performance handle",
     "the vote for performance was taken back before this call"},
    {13001, "invalid performance setting",
     "a value of the performance setting is out of its range"},
    {13002, "unsupported performance setting",
     "this SoC does not take the setting; use performance mode 'default'"},
    {13003, "transport error while setting performance",
     "the DSP did not answer; check that its libraries run at all"},
    {13004, "performance setting not supported on this SoC",
     "the simulator and some SoCs have no such setting; it is left out"},
    {13005, "out of memory while setting performance",
     "memory is short; free contexts that are not needed"},
    {13006, "performance setting failed",
     "the device refused the setting; use performance mode 'default'"},
    {14000, "invalid device handle", "the device was freed before this call"},
    {14001, "invalid device configuration",
     "the library does not know this SoC number or device option; use another SoC or a newer "
     "QAIRT release"},
    {14002, "hardware not available", "the HTP is switched off, or another process holds it"},
    {14003, "device still has contexts", "free the contexts of the device first"},
    {15000, "invalid global configuration",
     "global options must come before everything else, and this release must know them"},
    {30000, "invalid system handle", "the reader of the binary was freed before this call"},
    {30001, "invalid argument to the system library",
     "for a context binary: it is empty or not a context binary"},
    {30002, "system library operation failed",
     "the system library could not read the binary; use one of the same or a newer QAIRT release"},
    {30010, "malformed context binary",
     "the file is cut short, has bytes behind its end, or is not a context binary; its exact "
     "length is checked. Copy or compile it again"},
    {60000, "interface error",
     "the library offers no interface for this; use libQnnHtp.so of QAIRT 2.43 or later"},
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
