#include "eval/float_executor.h"

#include <utility>
#include <vector>

#include "decoder/decoder.h"
#include "package/package.h"
#include "quantize/prefix.h"

namespace spillway {
namespace {

// Rows of the model's own embedding, in float.
class ModelEmbedding : public EmbeddingTable {
 public:
  ModelEmbedding(std::shared_ptr<const ConstantData> rows, uint32_t vocab)
      : rows_(std::move(rows)), vocab_(vocab) {}
  uint32_t vocab_size() const override { return vocab_; }
  void Lookup(uint32_t token, std::byte* out) const override {
    rows_->ReadRows(token, 1, reinterpret_cast<float*>(out));
  }

 private:
  std::shared_ptr<const ConstantData> rows_;
  uint32_t vocab_;
};

}  // namespace

Result<std::unique_ptr<FloatExecutor>> FloatExecutor::Create(std::shared_ptr<const Model> model,
                                                             const FloatExecutorOptions& options,
                                                             std::shared_ptr<ThreadPool> pool) {
  Decoder decoder(model, options.transform);
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const auto& [name, ar_len] : {std::pair{kPrefillGraphName, options.prefill_ar},
                                     std::pair{kDecodeGraphName, options.decode_ar}}) {
    // Two graphs of the same length would be one too many.
    if (ar_len == 0 || (name == kPrefillGraphName && ar_len == options.decode_ar)) continue;
    DecoderOptions graph_options;
    graph_options.name = name;
    graph_options.ar_len = ar_len;
    graph_options.context_len = options.context_len;
    SPILLWAY_ASSIGN_OR_RETURN(Graph graph, decoder.Build(graph_options));
    graphs.push_back(std::make_shared<const Graph>(std::move(graph)));
  }
  auto embedding =
      std::make_shared<ModelEmbedding>(decoder.EmbeddingData(), model->config().vocab_size);
  HostModelOptions host;
  host.pool = pool.get();
  host.recipe = "float";
  if (!options.prefix_tokens.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(const FloatPrefix prefix,
                              ComputePrefix(decoder, options.prefix_tokens, pool.get()));
    host.prefix.tokens = prefix.tokens;
    for (const auto& values : prefix.k) host.prefix.k.push_back(MakeConstantOf(values));
    for (const auto& values : prefix.v) host.prefix.v.push_back(MakeConstantOf(values));
  }
  SPILLWAY_ASSIGN_OR_RETURN(auto inner,
                            HostModelExecutor::Create({graphs}, std::move(embedding), host));
  return std::unique_ptr<FloatExecutor>(new FloatExecutor(std::move(inner), std::move(pool)));
}

}  // namespace spillway
