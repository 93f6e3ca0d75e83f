// Small random models of random shapes, in float and compiled to integers.

#ifndef SPILLWAY_TESTS_RUNTIME_SMALL_MODEL_H_
#define SPILLWAY_TESTS_RUNTIME_SMALL_MODEL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "package/package.h"
#include "quantize/prefix.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "tests/quantize/tiny.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/random.h"
#include "tests/support/reference_decoder.h"

namespace spillway::test {

// Two layers, and the rest as the seed says.
inline TinyModelSpec SmallSpec(uint64_t seed) {
  Random random(seed);
  TinyModelSpec spec;
  spec.seed = seed;
  spec.architecture = std::vector<std::string>{"llama", "qwen2", "qwen3"}[random.Below(3)];
  spec.hidden = 32;
  spec.ffn = 48;
  spec.vocab = 270;
  spec.heads = 4;
  spec.kv_heads = 1u << random.Below(3);
  spec.head_dim = random.Below(2) == 0 ? 8 : 16;
  spec.tied = random.Below(2) == 0;
  if (spec.architecture == "llama") spec.rope_freqs = random.Below(2) == 0;
  if (spec.architecture != "qwen3" && random.Below(3) == 0) spec.rope_dim = spec.head_dim - 4;
  return spec;
}

// The float graphs of one model, with any AR lengths and context.
class FloatModel {
 public:
  explicit FloatModel(const TinyModelSpec& spec) : tiny_(MakeTinyModel(spec)), decoder_(tiny_) {}

  const TinyModel& tiny() const { return tiny_; }
  const RopeConfig& rope() const { return decoder_.model->config().rope; }

  // An AR length of 0 leaves that graph out.
  std::unique_ptr<HostModelExecutor> Make(uint32_t prefill_ar, uint32_t decode_ar,
                                          uint32_t context_len,
                                          const std::vector<uint32_t>& prefix = {}) {
    std::vector<std::shared_ptr<const Graph>> graphs;
    if (prefill_ar > 0) {
      graphs.push_back(decoder_.Build(kPrefillGraphName, prefill_ar, context_len));
    }
    if (decode_ar > 0) graphs.push_back(decoder_.Build(kDecodeGraphName, decode_ar, context_len));
    HostModelOptions options;
    options.pool = &pool_;
    if (!prefix.empty()) {
      const Result<FloatPrefix> made = ComputePrefix(*decoder_.decoder, prefix, &pool_);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      options.prefix.tokens = made->tokens;
      for (const auto& values : made->k) options.prefix.k.push_back(MakeConstantOf(values));
      for (const auto& values : made->v) options.prefix.v.push_back(MakeConstantOf(values));
    }
    Tensor table;
    table.name = kEmbeddingWeightName;
    table.shape = {tiny_.spec.vocab, tiny_.spec.hidden};
    table.role = TensorRole::kConstant;
    table.data = decoder_.decoder->EmbeddingData();
    auto executor = HostModelExecutor::Create({graphs}, table, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return executor.ok() ? std::move(executor).value() : nullptr;
  }

 private:
  TinyModel tiny_;
  TinyDecoder decoder_;
  ThreadPool pool_{1};
};

// A package on the host executor.
struct IntegerModel {
  std::shared_ptr<const Package> package;
  std::unique_ptr<HostModelExecutor> executor;
};
inline IntegerModel MakeIntegerModel(const std::string& folder, const CompileOptions& options,
                                     const TinyModelSpec& spec) {
  IntegerModel model;
  const std::string path = MakeTinyPackage(folder, options, spec);
  Result<std::shared_ptr<const Package>> package = Package::Open(path);
  EXPECT_TRUE(package.ok()) << package.status().ToString();
  if (!package.ok()) return model;
  model.package = *package;
  HostModelOptions host;
  host.threads = 1;
  auto executor = HostModelExecutor::Open(model.package, host);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  if (executor.ok()) model.executor = std::move(executor).value();
  return model;
}

// Feeds `tokens` and returns the logits of each.
inline std::vector<std::vector<float>> FeedAll(Generator& generator,
                                               std::span<const uint32_t> tokens) {
  std::vector<std::vector<float>> rows;
  const Status status = generator.Feed(tokens, [&](uint32_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return rows;
}
// The same one token at a time.
inline std::vector<std::vector<float>> FeedOneByOne(Generator& generator,
                                                    std::span<const uint32_t> tokens) {
  std::vector<std::vector<float>> rows;
  for (const uint32_t token : tokens) {
    const Status status = generator.Feed({&token, 1});
    EXPECT_TRUE(status.ok()) << status.ToString();
    rows.emplace_back(generator.logits().begin(), generator.logits().end());
  }
  return rows;
}

template <typename Row>
double LargestDifference(const std::vector<float>& a, const Row& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min<size_t>(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_RUNTIME_SMALL_MODEL_H_
