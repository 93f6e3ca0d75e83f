// Online prepare: a shard's graphs become a context on the machine that runs them.

#ifndef SPILLWAY_RUNTIME_PREPARE_CONTEXT_H_
#define SPILLWAY_RUNTIME_PREPARE_CONTEXT_H_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "qnn/api/manager.h"
#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway {

using ContextProgress = std::function<void(std::string_view stage, double fraction)>;

// A context that holds `graphs`, finalised and ready to be executed. Weights are
// shared unless `htp` says no, when there is more than one graph: nothing is stored, so the
// simulator can do it too. The SLC allocator is on for SlcAllocator::kOn only. `progress` (may
// be empty) is called from threads of the vendor too.
Result<std::unique_ptr<qnn::Context>> PrepareContext(
    const std::shared_ptr<qnn::Backend>& backend, const std::shared_ptr<qnn::Device>& device,
    const std::vector<std::shared_ptr<const Graph>>& graphs, const HtpOptions& htp,
    const ContextProgress& progress);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_PREPARE_CONTEXT_H_
