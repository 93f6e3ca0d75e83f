// ContextRunner: one context binary of the vendor, loaded, whose graphs can be
// executed. Two implementations: in this process, and in a child process that
// may crash or hang without harm (the program spillway-worker).

#ifndef SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_
#define SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ipc.h"
#include "graph/types.h"
#include "spillway/status.h"

namespace spillway {

struct ContextTensor {
  std::string name;
  DType dtype = DType::kU16;
  Shape shape;
  uint64_t Bytes() const { return NumElements(shape) * DTypeSize(dtype); }
};

struct ContextGraph {
  std::string name;
  std::vector<ContextTensor> inputs, outputs;  // in the context's own order
};

// What a context binary is.
struct ContextInfo {
  std::vector<ContextGraph> graphs;
  std::string build_id;    // of the library that made it
  uint32_t soc_model = 0;  // the vendor's number; 0 when not said
};

// Where every input and output lies in one block of memory, as byte offsets,
// multiples of 64. Two tensors may have the same place: a cache input of two
// graphs.
struct IoLayout {
  struct GraphPlaces {
    std::vector<uint64_t> inputs, outputs;
  };
  std::vector<GraphPlaces> graphs;  // as ContextInfo::graphs
  uint64_t bytes = 0;               // of the block

  // Appends a place of `size` bytes and returns its offset.
  uint64_t Add(uint64_t size);
};

// Not thread-safe.
class ContextRunner {
 public:
  virtual ~ContextRunner() = default;

  const ContextInfo& info() const { return info_; }

  // Allocates the block of memory (zero-filled) and makes Execute use it. Once,
  // before the first Execute. A layout that does not fit info() is
  // kInvalidArgument and names the tensor.
  Status Bind(const IoLayout& layout);
  // The same with memory that exists, of at least layout.bytes.
  Status Bind(const IoLayout& layout, SharedMemory memory);
  std::span<std::byte> memory() const { return memory_.bytes(); }

  // Runs info().graphs[graph] on the block. Blocks. kVendor: the vendor library
  // refused; kVendorCrash, kTimeout: its process is gone, and every later call is
  // kFailedPrecondition.
  virtual Status Execute(size_t graph) = 0;

 protected:
  // Called once, with a layout that fits and memory_ set.
  virtual Status UseMemory(const IoLayout& layout) = 0;

  ContextInfo info_;
  SharedMemory memory_;

 private:
  bool bound_ = false;
};

struct ContextRunnerOptions {
  std::string context_path;
  std::string qnn_lib_dir;  // empty: as qnn/api/library.h says
  // SoC that the simulator takes the device for; elsewhere the device is what it
  // is. A name of the SoC table; empty: the vendor's default.
  std::string soc;
  // Deadlines in seconds of the child process. The environment variables
  // SPILLWAY_LOAD_TIMEOUT and SPILLWAY_EXECUTE_TIMEOUT (seconds), when set, win.
  double load_timeout_s = 600;
  double execute_timeout_s = 120;
  // The vendor's log lines of at most this level (qnn::abi::LogLevel: 1 errors ..
  // 5 everything) go to our log; 0: as our own log level wants.
  uint32_t vendor_log_level = 0;
};

using ContextOpener =
    std::function<Result<std::unique_ptr<ContextRunner>>(const ContextRunnerOptions&)>;

// Loads the vendor library and the context into this process.
Result<std::unique_ptr<ContextRunner>> OpenContextInProcess(const ContextRunnerOptions& options);

// Starts a child (FindWorkerProgram) that does it. Its death is an error with its
// last output and the vendor's last log lines.
Result<std::unique_ptr<ContextRunner>> OpenContextInWorker(const ContextRunnerOptions& options);

// The child's side: `request` is the first message, whose "job" is "run". Serves
// until the other side closes the channel, which is ok. `open` loads the context.
// The protocol is at the top of context_server.cc.
Status ServeContext(Channel& channel, const Message& request,
                    const ContextOpener& open = OpenContextInProcess);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_
