#include "quantize/window_runner.h"

#include <cstring>

#include "kvcache/kv_cache.h"

namespace spillway {

void SetWindowInputs(uint32_t length, const FloatPrefix& prefix, uint32_t first_layer,
                     uint32_t num_layers, host::Executor& executor) {
  const auto past = static_cast<uint32_t>(prefix.tokens.size());
  FillMask(DType::kF32, length, past + length, past, length, executor.input(1).data());
  FillPositions(length, past, length, reinterpret_cast<int32_t*>(executor.input(2).data()));
  if (past == 0) return;
  for (uint32_t i = 0; i < num_layers; ++i) {
    const std::vector<float>& k = prefix.k[first_layer + i];
    const std::vector<float>& v = prefix.v[first_layer + i];
    std::memcpy(executor.input(3 + i).data(), k.data(), k.size() * sizeof(float));
    std::memcpy(executor.input(3 + num_layers + i).data(), v.data(), v.size() * sizeof(float));
  }
}

Result<std::unique_ptr<WindowRunner>> WindowRunner::Create(Decoder& decoder, uint32_t length,
                                                           const FloatPrefix* prefix,
                                                           ThreadPool* pool) {
  const uint32_t past = prefix == nullptr ? 0 : static_cast<uint32_t>(prefix->tokens.size());
  DecoderOptions options;
  options.name = "calibration";
  options.ar_len = length;
  options.context_len = past + length;
  SPILLWAY_ASSIGN_OR_RETURN(Graph graph, decoder.Build(options));
  auto runner = std::make_unique<WindowRunner>();
  SPILLWAY_ASSIGN_OR_RETURN(
      runner->executor_,
      host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), pool));
  host::Executor& executor = *runner->executor_;
  runner->embedding_ = decoder.EmbeddingData();
  runner->hidden_dim_ = decoder.model().config().hidden_dim;
  const FloatPrefix none;
  SetWindowInputs(length, prefix == nullptr ? none : *prefix, 0,
                  decoder.model().config().num_layers, executor);
  return runner;
}

Status WindowRunner::Run(const std::vector<uint32_t>& tokens,
                         const host::TensorObserver& observer) {
  auto* hidden = reinterpret_cast<float*>(executor_->input(0).data());
  for (size_t i = 0; i < tokens.size(); ++i) {
    embedding_->ReadRows(tokens[i], 1, hidden + i * hidden_dim_);
  }
  return executor_->Run(observer);
}

std::span<const float> WindowRunner::Output(size_t index) {
  const std::span<const std::byte> bytes = executor_->output(index);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace spillway
