// ContextRunner: the contexts of one model (one a shard) with one backend and one
// device of the vendor's library, whose graphs can be executed. Two
// implementations: in this process, and in a child process that may crash or hang
// without harm (the program spillway-worker).
//
// All contexts live in one process because the device's spill-fill buffer can be
// shared only there, and because then a shard reads what the one before wrote:
// nothing is copied between them.

#ifndef SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_
#define SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ipc.h"
#include "graph/types.h"
#include "spillway/options.h"
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

// What one context is.
struct ContextInfo {
  std::vector<ContextGraph> graphs;
  std::string build_id;    // of the library that made it
  uint32_t soc_model = 0;  // the vendor's number; 0 when not said
};

struct RunnerInfo {
  std::vector<ContextInfo> contexts;
  // The contexts share one spill-fill buffer on the device.
  bool shares_spill_fill = false;
};

// Where every input and output lies in one block of memory, as byte offsets,
// multiples of 64. Two tensors may have the same place: a cache input of two
// graphs, the hidden state that one shard writes and the next one reads.
struct IoLayout {
  struct GraphPlaces {
    std::vector<uint64_t> inputs, outputs;
  };
  std::vector<std::vector<GraphPlaces>> contexts;  // [context][graph] as RunnerInfo
  uint64_t bytes = 0;                              // of the block

  // Appends a place of `size` bytes and returns its offset.
  uint64_t Add(uint64_t size);
};

// What one execution took, as the vendor says; 0 where it says nothing.
struct ExecuteProfile {
  uint64_t total_us = 0;        // from the caller's side
  uint64_t accelerator_us = 0;  // on the HTP
  uint64_t cycles = 0;          // likewise
  // At level kDetailed: every operation of the vendor's with its cycles.
  std::vector<std::pair<std::string, uint64_t>> operations;
};

// Not thread-safe.
class ContextRunner {
 public:
  virtual ~ContextRunner() = default;

  const RunnerInfo& info() const { return info_; }

  // Allocates the block of memory (zero-filled) and makes Execute use it. Once,
  // before the first Execute. A layout that does not fit info() is
  // kInvalidArgument and names the tensor.
  Status Bind(const IoLayout& layout);
  // The same with memory that exists, of at least layout.bytes.
  Status Bind(const IoLayout& layout, SharedMemory memory);
  std::span<std::byte> memory() const { return memory_.bytes(); }
  // The descriptor of memory that Bind() took in place of what it was given, because the DSP
  // sees it; -1: it took none. Stays the runner's.
  int replaced_fd() const { return replaced_ ? memory_.fd() : -1; }

  // Runs info().contexts[context].graphs[graph] on the block. Blocks. kVendor: the
  // vendor library refused; kVendorCrash, kTimeout: its process is gone, and every
  // later call is kFailedPrecondition.
  virtual Status Execute(size_t context, size_t graph) = 0;
  // Of the last Execute that succeeded; empty without a profile level.
  const ExecuteProfile& profile() const { return profile_; }

 protected:
  // Called once, with a layout that fits and memory_ set; may put other memory there, of the
  // same size, and then sets replaced_.
  virtual Status UseMemory(const IoLayout& layout) = 0;
  // kInvalidArgument when there is no such graph.
  Status CheckGraph(size_t context, size_t graph) const;

  RunnerInfo info_;
  SharedMemory memory_;
  bool replaced_ = false;
  ExecuteProfile profile_;

 private:
  bool bound_ = false;
};

struct ContextRunnerOptions {
  // The context binaries, one a shard, loaded in this order.
  std::vector<std::string> context_paths;
  // When not empty, there are no context binaries: the graphs of this folder
  // (graphs.fb and weights.bin of a package) are prepared in the runner's process
  // with `htp`, one context a shard. Seconds to minutes.
  std::string prepare_folder;
  // One context more, the last: that of the package's evictor. It is in context_paths, or
  // prepared from the folder, and shares no spill-fill buffer.
  bool evictor = false;
  std::string qnn_lib_dir;  // empty: as qnn/api/library.h says

  // Read: priority, PD session, performance mode and latencies, profile and log
  // level, op packages; everything when graphs are prepared. `soc` is what the
  // simulator takes the device for (elsewhere the device is what it is); empty: the
  // vendor's default.
  HtpOptions htp;
  // The size of the spill-fill buffer that the contexts are to share: the first one
  // registers a group of this size and the others join it. A platform without that
  // says so in a warning and every context gets a buffer of its own, as with 0. Not for
  // graphs that are prepared.
  uint64_t shared_spill_fill_bytes = 0;

  // Deadlines in seconds of the child process. The environment variables
  // SPILLWAY_LOAD_TIMEOUT, SPILLWAY_PREPARE_TIMEOUT and SPILLWAY_EXECUTE_TIMEOUT
  // (seconds), when set, win.
  double load_timeout_s = 600;      // for all contexts
  double prepare_timeout_s = 3600;  // with prepare_folder, instead
  double execute_timeout_s = 120;
  // Told while contexts are loaded or prepared, with the fraction done (negative:
  // unknown); from any thread, one call at a time. Stays on this side.
  std::function<void(std::string_view stage, double fraction)> progress;
};

using ContextOpener =
    std::function<Result<std::unique_ptr<ContextRunner>>(const ContextRunnerOptions&)>;

// Loads the vendor library and the contexts into this process. When one fails, all
// that came before is freed.
Result<std::unique_ptr<ContextRunner>> OpenContextInProcess(const ContextRunnerOptions& options);

// Starts a child (FindWorkerProgram) that does it. Its death is an error with its
// last output and the vendor's last log lines.
Result<std::unique_ptr<ContextRunner>> OpenContextInWorker(const ContextRunnerOptions& options);

// The child's side: `request` is the first message, whose "job" is "run". Serves
// until the other side closes the channel, which is ok. `open` loads the contexts.
// The protocol is at the top of context_protocol.h.
Status ServeContext(Channel& channel, const Message& request,
                    const ContextOpener& open = OpenContextInProcess);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_CONTEXT_RUNNER_H_
