#include "quantize/layer_pass.h"

#include <cstring>
#include <utility>

#include "quantize/window_runner.h"

namespace spillway {

HiddenStates EmbedWindows(Decoder& decoder, const TokenWindows& windows,
                          const FloatPrefix& prefix) {
  const size_t width = decoder.model().config().hidden_dim;
  const auto embedding = decoder.EmbeddingData();
  HiddenStates states;
  for (const auto& window : WindowsAfterPrefix(windows, prefix)) {
    std::vector<float> state(window.size() * width);
    for (size_t i = 0; i < window.size(); ++i) {
      embedding->ReadRows(window[i], 1, state.data() + i * width);
    }
    states.push_back(std::move(state));
  }
  return states;
}

Result<Graph> LayerPass::BuildGraph(size_t length) const {
  const auto past = static_cast<uint32_t>(prefix_.tokens.size());
  DecoderOptions options;
  options.name = "weights";
  options.ar_len = static_cast<uint32_t>(length);
  options.context_len = past + options.ar_len;
  options.first_layer = layer_;
  options.num_layers = 1;
  return decoder_.Build(options);
}

Status LayerPass::Run(const Constants& weights, const HiddenStates& states, HiddenStates* next,
                      const host::TensorObserver& observer) const {
  const size_t width = decoder_.model().config().hidden_dim;
  std::unique_ptr<host::Executor> executor;
  size_t length = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const std::vector<float>& state = states[i];
    if (executor == nullptr || state.size() / width != length) {
      length = state.size() / width;
      SPILLWAY_ASSIGN_OR_RETURN(executor, MakeExecutor(weights, length));
    }
    const size_t bytes = state.size() * sizeof(float);
    std::memcpy(executor->input(0).data(), state.data(), bytes);
    SPILLWAY_RETURN_IF_ERROR(executor->Run(observer));
    if (next == nullptr || last()) continue;
    std::memcpy((*next)[i].data(), executor->output(0).data(), bytes);
  }
  return OkStatus();
}

Result<std::unique_ptr<host::Executor>> LayerPass::MakeExecutor(const Constants& weights,
                                                                size_t length) const {
  SPILLWAY_ASSIGN_OR_RETURN(Graph graph, BuildGraph(length));
  for (TensorId id = 0; id < graph.tensors().size(); ++id) {
    const auto found = weights.find(graph.tensor(id).name);
    if (found != weights.end()) graph.mutable_tensor(id).data = found->second;
  }
  SPILLWAY_ASSIGN_OR_RETURN(
      auto executor,
      host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), pool_));
  if (last()) executor->LimitOutputRow(0, 0);
  SetWindowInputs(static_cast<uint32_t>(length), prefix_, layer_, 1, *executor);
  return executor;
}

}  // namespace spillway
