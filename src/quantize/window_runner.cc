#include "quantize/window_runner.h"

#include <cstring>

#include "kvcache/kv_cache.h"

namespace spillway {

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
  FillMask(DType::kF32, length, past + length, past, length, executor.input(1).data());
  FillPositions(length, past, length, reinterpret_cast<int32_t*>(executor.input(2).data()));
  const size_t layers = past == 0 ? 0 : prefix->k.size();
  for (size_t layer = 0; layer < layers; ++layer) {
    std::memcpy(executor.input(3 + layer).data(), prefix->k[layer].data(),
                prefix->k[layer].size() * sizeof(float));
    std::memcpy(executor.input(3 + layers + layer).data(), prefix->v[layer].data(),
                prefix->v[layer].size() * sizeof(float));
  }
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
