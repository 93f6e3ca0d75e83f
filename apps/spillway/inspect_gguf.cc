// spillway inspect of a GGUF file: also one that cannot be compiled, so that it
// says why.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "inspect.h"
#include "json_text.h"
#include "model/gguf.h"
#include "model/model.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr size_t kShownElements = 8;  // of a metadata array
constexpr size_t kShownCharacters = 100;

template <typename T>
Json ArraySummary(const std::vector<T>& values) {
  Json first = Json::array();
  for (size_t i = 0; i < std::min(values.size(), kShownElements); ++i) {
    if constexpr (std::is_same_v<T, std::string_view>) {
      first.push_back(std::string(values[i]));
    } else {
      first.push_back(static_cast<T>(values[i]));
    }
  }
  return {{"length", values.size()}, {"first", first}};
}

// A scalar as itself, an array as {"length", "first"}.
Json MetadataJson(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return v;
        } else {
          return ArraySummary(v);
        }
      },
      value);
}

std::string MetadataText(const GgufValue& value) {
  const Json json = MetadataJson(value);
  std::string text;
  if (json.is_object()) {
    text = fmt::format("{} elements: ", json["length"].get<size_t>()) +
           json["first"].dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (text.size() > kShownCharacters) {
    size_t cut = kShownCharacters;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

// Outermost dimension first, as everywhere else in the program.
std::vector<uint64_t> ShapeOf(const GgufTensor& tensor) {
  return {tensor.dims.rbegin(), tensor.dims.rend()};
}

Json ConfigJson(const Model& model) {
  const ModelConfig& c = model.config();
  return {{"architecture", c.architecture},
          {"name", c.name},
          {"parameters", model.num_parameters()},
          {"num_layers", c.num_layers},
          {"hidden_dim", c.hidden_dim},
          {"ffn_dim", c.ffn_dim},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"vocab_size", c.vocab_size},
          {"max_context", c.max_context},
          {"rope_theta", c.rope.theta},
          {"attention_bias", c.attention_bias},
          {"qk_norm", c.qk_norm},
          {"tied_embeddings", c.tied_embeddings}};
}

std::string ConfigText(const Model& model) {
  const ModelConfig& c = model.config();
  std::string text;
  text += fmt::format("model         {} ({}), {} parameters\n", c.name, c.architecture,
                      CountText(model.num_parameters()));
  text += fmt::format("layers        {} of width {}, feed-forward {}\n", c.num_layers, c.hidden_dim,
                      c.ffn_dim);
  text += fmt::format("attention     {} heads of {}, {} KV heads{}{}\n", c.num_heads, c.head_dim,
                      c.num_kv_heads, c.attention_bias ? ", biases" : "",
                      c.qk_norm ? ", q and k norms" : "");
  text += fmt::format("vocabulary    {} tokens, {} output head\n", c.vocab_size,
                      c.tied_embeddings ? "embeddings shared with the" : "separate");
  text += fmt::format("context       {} tokens, RoPE theta {}\n", c.max_context, c.rope.theta);
  return text;
}

struct TypeUse {
  uint64_t tensors = 0, elements = 0, bytes = 0;
};

std::string TypesText(const GgufFile& file) {
  std::map<std::string, TypeUse> uses;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeUse& use = uses[std::string(GgufTypeName(tensor.type))];
    ++use.tensors;
    use.elements += tensor.rows() * tensor.cols();
    use.bytes += tensor.data.size();
  }
  TextTable table({"type", "tensors", "values", "bytes"});
  for (const auto& [name, use] : uses) {
    table.AddRow(
        {name, std::to_string(use.tensors), CountText(use.elements), BytesText(use.bytes)});
  }
  return table.ToString(2);
}

std::string TensorsText(const GgufFile& file) {
  TextTable table({"tensor", "type", "shape", "bytes"});
  for (const GgufTensor& tensor : file.tensors()) {
    table.AddRow({tensor.name, std::string(GgufTypeName(tensor.type)),
                  fmt::format("[{}]", fmt::join(ShapeOf(tensor), ", ")),
                  BytesText(tensor.data.size())});
  }
  return table.ToString(2);
}

Json ToJson(const GgufFile& file, const Result<std::shared_ptr<const Model>>& model,
            bool with_tensors) {
  Json json = {{"kind", "gguf"},
               {"path", file.path()},
               {"bytes", file.mapping().bytes().size()},
               {"version", file.version()},
               {"alignment", file.alignment()}};
  json["config"] = model.ok() ? ConfigJson(**model) : Json();
  json["cannot_compile"] = model.ok() ? Json() : Json(model.status().message());
  for (const auto& [key, value] : file.metadata()) json["metadata"][key] = MetadataJson(value);
  json["num_tensors"] = file.tensors().size();
  if (!with_tensors) return json;
  json["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", GgufTypeName(tensor.type)},
                               {"shape", ShapeOf(tensor)},
                               {"bytes", tensor.data.size()},
                               {"offset", tensor.file_offset}});
  }
  return json;
}

std::string ToText(const GgufFile& file, const Result<std::shared_ptr<const Model>>& model,
                   bool with_tensors) {
  std::string text = fmt::format("{}: GGUF version {}, {}\n", file.path(), file.version(),
                                 BytesText(file.mapping().bytes().size()));
  text +=
      model.ok() ? ConfigText(**model) : "cannot be compiled: " + model.status().message() + "\n";
  text += fmt::format("tensors       {}\n", file.tensors().size()) + TypesText(file);
  if (with_tensors) text += "\n" + TensorsText(file);
  TextTable table({"metadata", ""});
  for (const auto& [key, value] : file.metadata()) table.AddRow({key, MetadataText(value)});
  return text + "\n" + table.ToString();
}

}  // namespace

Status InspectGguf(const InspectOptions& options, Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(options.path));
  const auto model = Model::Open(options.path);
  return console.Print(console.json ? JsonText(ToJson(*file, model, options.tensors))
                                    : ToText(*file, model, options.tensors));
}

}  // namespace spillway::cli
