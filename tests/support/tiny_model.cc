#include "tests/support/tiny_model.h"

#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "tests/support/random.h"

namespace spillway::test {

const char kChatMlTemplate[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}";

namespace {

// GPT-2's printable stand-in for a byte, in UTF-8: printable Latin-1 characters
// are themselves, the others are numbered from U+0100.
std::string ByteToken(uint32_t byte) {
  const auto printable = [](uint32_t b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
  };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// Merges of two known tokens: common English first, then every pair of
// letters, then pairs with a third letter.
std::vector<std::pair<std::string, std::string>> MergeCandidates() {
  const std::string space = ByteToken(' ');
  std::vector<std::pair<std::string, std::string>> merges = {
      {space, "t"},        {space, "a"},        {"h", "e"},   {"i", "n"},         {"r", "e"},
      {"o", "n"},          {space + "t", "he"}, {"e", "r"},   {space, "s"},       {"a", "t"},
      {space, "w"},        {"o", "r"},          {space, "o"}, {"e", "n"},         {space, "c"},
      {"i", "t"},          {"i", "s"},          {"a", "n"},   {"o", "u"},         {"l", "l"},
      {"e", "s"},          {space, "p"},        {"in", "g"},  {space + "a", "n"}, {"e", "d"},
      {space + "an", "d"},
  };
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) merges.push_back({std::string(1, a), std::string(1, b)});
  }
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      for (char c = 'a'; c <= 'z'; ++c) merges.push_back({{a, b}, std::string(1, c)});
    }
  }
  return merges;
}

void AddTokenizer(const TinyModelSpec& spec, GgufWriter* file) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<MetaValue> types(3, MetaValue::I32(3));
  for (uint32_t byte = 0; byte < 256; ++byte) tokens.push_back(ByteToken(byte));
  std::set<std::string> known(tokens.begin(), tokens.end());
  std::vector<std::string> merges;
  for (const auto& [left, right] : MergeCandidates()) {
    if (tokens.size() >= spec.vocab) break;
    if (!known.insert(left + right).second) continue;
    tokens.push_back(left + right);
    std::string merge = left;
    merges.push_back(merge.append(" ").append(right));
  }
  if (tokens.size() != spec.vocab) std::abort();
  types.resize(tokens.size(), MetaValue::I32(1));

  file->Set("tokenizer.ggml.model", MetaValue::String("gpt2"));
  file->Set("tokenizer.ggml.pre", MetaValue::String(spec.pre));
  file->Set("tokenizer.ggml.tokens", MetaValue::Strings(tokens));
  file->Set("tokenizer.ggml.token_type", MetaValue::Array(5, types));
  file->Set("tokenizer.ggml.merges", MetaValue::Strings(merges));
  file->Set("tokenizer.ggml.bos_token_id", MetaValue::U32(1));
  file->Set("tokenizer.ggml.eos_token_id", MetaValue::U32(2));
  file->Set("tokenizer.ggml.unknown_token_id", MetaValue::U32(0));
  file->Set("tokenizer.ggml.padding_token_id", MetaValue::U32(2));
  file->Set("tokenizer.ggml.add_bos_token", MetaValue::Bool(false));
  if (!spec.chat_template.empty()) {
    file->Set("tokenizer.chat_template", MetaValue::String(spec.chat_template));
  }
}

void AddConfig(const TinyModelSpec& spec, GgufWriter* file) {
  const std::string prefix = spec.architecture + ".";
  const auto set = [&](const char* key, uint32_t value) {
    file->Set(prefix + key, MetaValue::U32(value));
  };
  file->Set("general.architecture", MetaValue::String(spec.architecture));
  file->Set("general.type", MetaValue::String("model"));
  file->Set("general.name", MetaValue::String("tiny " + spec.architecture));
  set("block_count", spec.layers);
  set("context_length", spec.context_length);
  set("embedding_length", spec.hidden);
  set("feed_forward_length", spec.ffn);
  set("attention.head_count", spec.heads);
  set("attention.head_count_kv", spec.kv_heads);
  if (spec.architecture == "qwen3" || spec.hidden != spec.heads * spec.head_dim) {
    set("attention.key_length", spec.head_dim);
    set("attention.value_length", spec.head_dim);
  }
  file->Set(prefix + "attention.layer_norm_rms_epsilon", MetaValue::F32(spec.rms_eps));
  file->Set(prefix + "rope.freq_base", MetaValue::F32(spec.rope_theta));
  if (spec.architecture == "llama" || spec.rope_dim != 0) {
    set("rope.dimension_count", spec.rope_dim == 0 ? spec.head_dim : spec.rope_dim);
  }
  if (!spec.rope_scaling.empty()) {
    file->Set(prefix + "rope.scaling.type", MetaValue::String(spec.rope_scaling));
    file->Set(prefix + "rope.scaling.factor", MetaValue::F32(spec.rope_scaling_factor));
    set("rope.scaling.original_context_length", spec.rope_original_context);
  }
  set("vocab_size", spec.vocab);
}

// Draws weights and adds them to the file. The order of calls decides the
// values, so that it must stay as it is for a seed to mean the same model.
class WeightMaker {
 public:
  explicit WeightMaker(TinyModel* model) : model_(*model), random_(model->spec.seed) {}

  void Matrix(const std::string& name, uint32_t rows, uint32_t cols, double deviation,
              TensorType type) {
    if (cols % BlockElements(type) != 0) {
      type = cols % 32 == 0 ? TensorType::kQ8_0 : TensorType::kF16;
    }
    Add(name, {cols, rows}, type, 0.0, deviation);
  }
  void Vector(const std::string& name, uint32_t size, double mean, double deviation) {
    Add(name, {size}, TensorType::kF32, mean, deviation);
  }

  void Layer(uint32_t index) {
    const TinyModelSpec& s = model_.spec;
    const std::string prefix = "blk." + std::to_string(index) + ".";
    const uint32_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    const auto linear = [&](const char* name, uint32_t rows, uint32_t cols, double gain) {
      Matrix(prefix + name, rows, cols, gain / std::sqrt(cols), s.weight_type);
    };
    Vector(prefix + "attn_norm.weight", s.hidden, 1.0, 0.1);
    linear("attn_q.weight", q, s.hidden, 1.5);
    linear("attn_k.weight", kv, s.hidden, 1.5);
    linear("attn_v.weight", kv, s.hidden, 1.0);
    if (s.architecture == "qwen2" || s.llama_bias) {
      Vector(prefix + "attn_q.bias", q, 0.0, 0.2);
      Vector(prefix + "attn_k.bias", kv, 0.0, 0.2);
      Vector(prefix + "attn_v.bias", kv, 0.0, 0.2);
    }
    if (s.architecture == "qwen3") {
      Vector(prefix + "attn_q_norm.weight", s.head_dim, 1.2, 0.1);
      Vector(prefix + "attn_k_norm.weight", s.head_dim, 1.2, 0.1);
    }
    linear("attn_output.weight", s.hidden, q, 1.5);
    Vector(prefix + "ffn_norm.weight", s.hidden, 1.0, 0.1);
    linear("ffn_gate.weight", s.ffn, s.hidden, 1.0);
    linear("ffn_up.weight", s.ffn, s.hidden, 1.0);
    // SwiGLU shrinks its input to about a third.
    linear("ffn_down.weight", s.hidden, s.ffn, 3.0);
  }

  void RopeFreqs(uint32_t size) {
    std::vector<float> values(size);
    for (uint32_t i = 0; i < size; ++i) {
      values[i] = i < size / 2 ? 1.0f : 1.0f + 7.0f * static_cast<float>(random_.Uniform());
    }
    Store("rope_freqs.weight", {size}, TensorType::kF32, values);
  }

 private:
  void Add(const std::string& name, std::vector<uint64_t> dims, TensorType type, double mean,
           double deviation) {
    uint64_t elements = 1;
    for (const uint64_t dim : dims) elements *= dim;
    std::vector<float> values(elements);
    for (float& value : values) {
      value = static_cast<float>(mean + deviation * random_.Gauss());
    }
    Store(name, std::move(dims), type, values);
  }

  void Store(const std::string& name, std::vector<uint64_t> dims, TensorType type,
             const std::vector<float>& values) {
    model_.file.AddTensor(name, std::move(dims), type, values);
    model_.weights[name] = DequantizeReference(type, model_.file.tensors.back().data);
  }

  TinyModel& model_;
  Random random_;
};

}  // namespace

TinyModel MakeTinyModel(const TinyModelSpec& spec) {
  TinyModel model;
  model.spec = spec;
  AddConfig(spec, &model.file);
  AddTokenizer(spec, &model.file);
  WeightMaker maker(&model);
  // Small next to what the layers add, so that a tied head does not always
  // answer with the last token; logits then have a deviation of about 2.5.
  const double embedding = 2.5 / std::sqrt(spec.hidden);
  maker.Matrix("token_embd.weight", spec.vocab, spec.hidden, embedding, spec.embedding_type);
  if (spec.rope_freqs) {
    maker.RopeFreqs((spec.rope_dim == 0 ? spec.head_dim : spec.rope_dim) / 2);
  }
  for (uint32_t i = 0; i < spec.layers; ++i) maker.Layer(i);
  maker.Vector("output_norm.weight", spec.hidden, 1.0, 0.1);
  if (!spec.tied) {
    maker.Matrix("output.weight", spec.vocab, spec.hidden, embedding, spec.embedding_type);
  }
  return model;
}

std::string WriteTinyModel(const std::string& path, const TinyModelSpec& spec) {
  MakeTinyModel(spec).file.Write(path);
  return path;
}

}  // namespace spillway::test
