// A model whose logits follow, by a hash, from exactly the tokens that each row
// sees: their order, their positions and every byte of their K and V. It finds
// any mistake in masks, positions, chunks and the cache.

#ifndef SPILLWAY_TESTS_RUNTIME_FAKE_MODEL_EXECUTOR_H_
#define SPILLWAY_TESTS_RUNTIME_FAKE_MODEL_EXECUTOR_H_

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/model_executor.h"
#include "runtime/package_embedding.h"

namespace spillway::test {

class FakeModelExecutor : public ModelExecutor {
 public:
  static constexpr uint32_t kVocab = 97, kLayers = 2, kHeads = 2, kDim = 3;

  // An AR length of 0 leaves that graph out.
  FakeModelExecutor(uint32_t prefill_ar, uint32_t decode_ar, uint32_t context_len)
      : embedding_(kVocab) {
    io_.vocab_size = kVocab;
    io_.hidden_dim = 1;
    io_.hidden_dtype = DType::kI32;
    io_.mask_dtype = DType::kU16;
    io_.logits_dtype = DType::kU16;
    io_.logits_encoding = Encoding::PerTensor(DType::kU16, 0.5f, -100);
    io_.kv = {kLayers, kHeads, kDim, context_len, DType::kU16};
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      k_.emplace_back(kHeads * kDim * (context_len - 1), uint16_t{0xbeef});
      v_.emplace_back(kHeads * kDim * (context_len - 1), uint16_t{0xbeef});
    }
    steps_[0].Resize(prefill_ar, context_len);
    steps_[1].Resize(decode_ar, context_len);
  }

  const ModelIo& io() const override { return io_; }
  const EmbeddingTable& embedding() const override { return embedding_; }
  StepBuffers& buffers(StepKind kind) override { return Of(kind).buffers; }
  std::byte* k(uint32_t layer) override { return reinterpret_cast<std::byte*>(k_[layer].data()); }
  std::byte* v(uint32_t layer) override { return reinterpret_cast<std::byte*>(v_[layer].data()); }
  std::string Describe() const override { return "fake"; }
  uint64_t weight_bytes() const override { return 0; }

  Status Run(StepKind kind, int logits_row) override {
    ++runs;
    last_logits_row = logits_row;
    calls += kind == StepKind::kPrefill ? 'P' : 'D';
    if (runs == fail_at_run) return VendorError("the fake was told to fail");
    Step& step = Of(kind);
    const uint32_t ar = step.buffers.ar_len;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t h = 0; h < kHeads; ++h) {
        for (uint32_t d = 0; d < kDim; ++d) {
          for (uint32_t t = 0; t < ar; ++t) {
            const uint32_t token = static_cast<uint32_t>(step.hidden[t]);
            const uint32_t position = static_cast<uint32_t>(step.positions[t]);
            step.k_new[layer][(h * kDim + d) * ar + t] = Value(token, position, layer, h, d);
            step.v_new[layer][(h * ar + t) * kDim + d] = Value(token, position, layer, h, d + 50);
          }
        }
      }
    }
    for (uint32_t row = 0; row < ar; ++row) {
      if (logits_row >= 0 && static_cast<int>(row) != logits_row) continue;
      FillLogits(step, row);
    }
    return OkStatus();
  }

  // The logits that must follow `tokens` at positions 0, 1, 2, ...
  static std::vector<float> Expected(std::span<const uint32_t> tokens) {
    uint32_t hash = 1;
    for (uint32_t t = 0; t < tokens.size(); ++t) hash = Mix(hash, TokenHash(tokens[t], t));
    std::vector<float> logits;
    for (uint32_t id = 0; id < kVocab; ++id) {
      logits.push_back(0.5f * (static_cast<float>(Logit(hash, id)) - 100.0f));
    }
    return logits;
  }

  int runs = 0;
  int fail_at_run = 0;
  int last_logits_row = -2;
  std::string calls;  // "PPD"

 private:
  struct Step {
    void Resize(uint32_t ar, uint32_t context_len) {
      buffers.ar_len = ar;
      hidden.resize(ar);
      positions.resize(ar);
      mask.resize(size_t{ar} * context_len);
      logits.resize(size_t{ar} * kVocab);
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        k_new[layer].resize(size_t{ar} * kHeads * kDim);
        v_new[layer].resize(size_t{ar} * kHeads * kDim);
        buffers.k_new.push_back(reinterpret_cast<std::byte*>(k_new[layer].data()));
        buffers.v_new.push_back(reinterpret_cast<std::byte*>(v_new[layer].data()));
      }
      buffers.hidden = reinterpret_cast<std::byte*>(hidden.data());
      buffers.mask = reinterpret_cast<std::byte*>(mask.data());
      buffers.positions = positions.data();
      buffers.logits = reinterpret_cast<const std::byte*>(logits.data());
    }
    std::vector<int32_t> hidden, positions;
    std::vector<uint16_t> mask, logits;
    std::array<std::vector<uint16_t>, kLayers> k_new, v_new;
    StepBuffers buffers;
  };

  Step& Of(StepKind kind) { return steps_[kind == StepKind::kPrefill ? 0 : 1]; }

  static uint32_t Mix(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u ^ (b + 0x9e3779b9u);
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ (x >> 13);
  }
  static uint16_t Value(uint32_t token, uint32_t position, uint32_t layer, uint32_t h, uint32_t d) {
    return static_cast<uint16_t>(Mix(Mix(token, position), (layer * 16 + h) * 128 + d));
  }
  // Of all K and V of one token.
  static uint32_t TokenHash(uint32_t token, uint32_t position) {
    uint32_t hash = 7;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t h = 0; h < kHeads; ++h) {
        for (uint32_t d = 0; d < kDim; ++d) {
          hash = Mix(hash, Value(token, position, layer, h, d));
          hash = Mix(hash, Value(token, position, layer, h, d + 50));
        }
      }
    }
    return hash;
  }
  static uint16_t Logit(uint32_t hash, uint32_t id) { return static_cast<uint16_t>(Mix(hash, id)); }

  // The hash of column `column`'s K and V as they lie in memory.
  uint32_t ColumnHash(const Step& step, uint32_t column) const {
    const uint32_t ar = step.buffers.ar_len, past = io_.kv.context_len - ar;
    uint32_t hash = 7;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t h = 0; h < kHeads; ++h) {
        for (uint32_t d = 0; d < kDim; ++d) {
          if (column < past) {
            hash = Mix(hash, k_[layer][(h * kDim + d) * past + column]);
            hash = Mix(hash, v_[layer][(h * past + column) * kDim + d]);
          } else {
            hash = Mix(hash, step.k_new[layer][(h * kDim + d) * ar + column - past]);
            hash = Mix(hash, step.v_new[layer][(h * ar + column - past) * kDim + d]);
          }
        }
      }
    }
    return hash;
  }

  void FillLogits(Step& step, uint32_t row) {
    uint32_t hash = 1;
    for (uint32_t column = 0; column < io_.kv.context_len; ++column) {
      if (step.mask[row * io_.kv.context_len + column] == 65535) {
        hash = Mix(hash, ColumnHash(step, column));
      }
    }
    for (uint32_t id = 0; id < kVocab; ++id) step.logits[row * kVocab + id] = Logit(hash, id);
  }

  ModelIo io_;
  TokenIdTable embedding_;
  std::vector<std::vector<uint16_t>> k_, v_;
  std::array<Step, 2> steps_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_RUNTIME_FAKE_MODEL_EXECUTOR_H_
