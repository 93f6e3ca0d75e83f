// Python's jinja2 as the measure of the template interpreter.

#ifndef SPILLWAY_TESTS_MODEL_JINJA_ORACLE_H_
#define SPILLWAY_TESTS_MODEL_JINJA_ORACLE_H_

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_interpreter.h"
#include "model/jinja_parser.h"
#include "tests/support/paths.h"

namespace spillway::test {

inline bool HasOracle() {
  static const bool has = std::system("/usr/bin/python3 -c 'import jinja2' 2>/dev/null") == 0;
  return has;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct OracleCase {
  std::string source;
  nlohmann::ordered_json context;
};

// What jinja2 renders; nullopt where it fails.
inline std::vector<std::optional<std::string>> RunOracle(const std::vector<OracleCase>& cases) {
  nlohmann::ordered_json input = nlohmann::ordered_json::array();
  for (const OracleCase& one : cases) {
    input.push_back({{"template", one.source}, {"context", one.context}});
  }
  const TempFolder folder;
  std::ofstream(folder.File("in.json")) << input.dump();
  const std::string command = "/usr/bin/python3 '" + SourceDir() +
                              "/tests/model/jinja_oracle.py' < '" + folder.File("in.json") +
                              "' > '" + folder.File("out.json") + "'";
  std::vector<std::optional<std::string>> results;
  if (std::system(command.c_str()) != 0) return results;
  const auto output = nlohmann::json::parse(ReadText(folder.File("out.json")), nullptr, false);
  if (!output.is_array()) return results;
  for (const auto& one : output) {
    results.push_back(one["ok"].get<bool>() ? std::optional(one["text"].get<std::string>())
                                            : std::nullopt);
  }
  return results;
}

inline jinja::Value ValueOf(const nlohmann::ordered_json& json) {
  using jinja::Value;
  if (json.is_boolean()) return Value::Bool(json.get<bool>());
  if (json.is_number_integer()) return Value::Int(json.get<int64_t>());
  if (json.is_number_float()) return Value::Float(json.get<double>());
  if (json.is_string()) return Value::String(json.get<std::string>());
  if (json.is_array()) {
    jinja::ValueList items;
    for (const auto& item : json) items.push_back(ValueOf(item));
    return Value::List(std::move(items));
  }
  if (json.is_object()) {
    jinja::ValueItems items;
    for (const auto& [key, item] : json.items()) {
      items.emplace_back(Value::String(key), ValueOf(item));
    }
    return Value::Dict(std::move(items));
  }
  return Value::None();
}

// What the interpreter renders.
inline Result<std::string> RenderJinja(const std::string& source,
                                       const nlohmann::ordered_json& context,
                                       const jinja::RunLimits& limits = {}) {
  SPILLWAY_ASSIGN_OR_RETURN(const jinja::Body body, jinja::ParseTemplate(source));
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [key, value] : context.items()) variables.emplace_back(key, ValueOf(value));
  SPILLWAY_ASSIGN_OR_RETURN(const MarkedText text,
                            jinja::RunTemplate(body, std::move(variables), limits));
  return text.text();
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_MODEL_JINJA_ORACLE_H_
