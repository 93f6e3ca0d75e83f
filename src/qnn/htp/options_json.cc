#include "qnn/htp/options_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "qnn/htp/option_names.h"

namespace spillway::qnn::htp {
namespace {

using Json = nlohmann::ordered_json;

// ---- To JSON: one overload a kind of value.

Json ToJson(const std::string& value) { return value; }
Json ToJson(uint32_t value) { return value; }
Json ToJson(bool value) { return value; }

template <typename E>
requires std::is_enum_v<E> Json ToJson(E value) { return OptionName(value); }

Json ToJson(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json json = Json::array();
  for (const auto& [key, value] : pairs) json.push_back(Json::array({key, value}));
  return json;
}

Json ToJson(const std::vector<OpPackage>& packages) {
  Json json = Json::array();
  for (const OpPackage& package : packages) {
    json.push_back(Json{{"path", package.path},
                        {"provider", package.interface_provider},
                        {"target", package.target}});
  }
  return json;
}

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    json_[name] = ToJson(value);
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) json_[name] = ToJson(*value);
  }
  std::string Text() const { return json_.dump(-1, ' ', false, Json::error_handler_t::replace); }

 private:
  Json json_ = Json::object();
};

// ---- From JSON: false, with what was expected, when the value does not fit.

bool FromJson(const Json& json, std::string* value, std::string* expected) {
  *expected = "text";
  if (!json.is_string()) return false;
  *value = json.get<std::string>();
  return true;
}

bool FromJson(const Json& json, bool* value, std::string* expected) {
  *expected = "true or false";
  if (!json.is_boolean()) return false;
  *value = json.get<bool>();
  return true;
}

bool FromJson(const Json& json, uint32_t* value, std::string* expected) {
  *expected = "a whole number of 32 bits";
  if (!json.is_number_unsigned() || json.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
    return false;
  }
  *value = json.get<uint32_t>();
  return true;
}

template <typename E>
requires std::is_enum_v<E>
bool FromJson(const Json& json, E* value, std::string* expected) {
  *expected = "one of " + OptionNames<E>();
  if (!json.is_string()) return false;
  const Result<E> parsed = ParseOption<E>(json.get<std::string>());
  if (parsed.ok()) *value = *parsed;
  return parsed.ok();
}

bool FromJson(const Json& json, std::vector<std::pair<std::string, std::string>>* pairs,
              std::string* expected) {
  const auto is_pair = [](const Json& one) {
    return one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string();
  };
  *expected = "an array of [key, value]";
  if (!json.is_array()) return false;
  for (const Json& one : json) {
    if (!is_pair(one)) return false;
    pairs->emplace_back(one[0].get<std::string>(), one[1].get<std::string>());
  }
  return true;
}

bool FromJson(const Json& json, std::vector<OpPackage>* packages, std::string* expected) {
  const auto text = [](const Json& one, const char* name, std::string* value) {
    const auto found = one.find(name);
    if (found == one.end() || !found->is_string()) return false;
    *value = found->get<std::string>();
    return true;
  };
  *expected = "an array of objects with path, provider and target";
  if (!json.is_array()) return false;
  for (const Json& one : json) {
    OpPackage& package = packages->emplace_back();
    if (!one.is_object() || !text(one, "path", &package.path) ||
        !text(one, "provider", &package.interface_provider) ||
        !text(one, "target", &package.target)) {
      return false;
    }
  }
  return true;
}

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    const Json* found = Take(name);
    std::string expected;
    if (found != nullptr && !FromJson(*found, &value, &expected)) {
      Fail(fmt::format("HTP option {}: found {}, expected {}", name, Show(*found), expected));
    }
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    if (!json_.contains(name)) return;
    (*this)(name, value.emplace());
  }
  // Manifests from before `auto` existed have true or false.
  void operator()(const char* name, SlcAllocator& value) {
    if (json_.contains(name) && json_.at(name).is_boolean()) {
      value = Take(name)->get<bool>() ? SlcAllocator::kOn : SlcAllocator::kOff;
    } else {
      operator()<SlcAllocator>(name, value);
    }
  }

  // Ok when every field of the object was taken and fitted.
  Status Finish() {
    for (const auto& [name, value] : json_.items()) {
      if (!taken_.contains(name)) Fail(fmt::format("HTP option {} is unknown", name));
    }
    return status_;
  }

 private:
  static std::string Show(const Json& json) {
    constexpr size_t kMost = 60;
    std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }
  const Json* Take(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) return nullptr;
    taken_[name] = true;
    return &*found;
  }
  void Fail(std::string message) {
    if (status_.ok()) status_ = CorruptDataError(std::move(message));
  }

  const Json& json_;
  Json taken_ = Json::object();
  Status status_;
};

// Every field once, for both directions.
template <typename Options, typename Visitor>
void VisitFields(Options& options, Visitor& visit) {
  visit("soc", options.soc);
  visit("optimization_level", options.optimization_level);
  visit("decode_optimization_level", options.decode_optimization_level);
  visit("vtcm_mb", options.vtcm_mb);
  visit("hvx_threads", options.hvx_threads);
  visit("slc_allocator", options.slc_allocator);
  visit("weight_sharing", options.weight_sharing);
  visit("multi_contexts", options.multi_contexts);
  visit("dlbc", options.dlbc);
  visit("dlbc_weights", options.dlbc_weights);
  visit("fold_relu", options.fold_relu);
  visit("conv_hmx", options.conv_hmx);
  visit("precision", options.precision);
  visit("finalize_config", options.finalize_config);
  visit("op_packages", options.op_packages);
  visit("online_prepare", options.online_prepare);
  visit("dump_intermediates", options.dump_intermediates);
  visit("saver_dir", options.saver_dir);
  visit("priority", options.priority);
  visit("pd_session", options.pd_session);
  visit("performance", options.performance);
  visit("rpc_polling_us", options.rpc_polling_us);
  visit("rpc_control_latency_us", options.rpc_control_latency_us);
  visit("sleep_latency_us", options.sleep_latency_us);
  visit("profile_level", options.profile_level);
  visit("log_level", options.log_level);
}

}  // namespace

std::string HtpOptionsToJson(const HtpOptions& options) {
  Writer writer;
  VisitFields(options, writer);
  return writer.Text();
}

Result<HtpOptions> HtpOptionsFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return CorruptDataError("HTP options are not a JSON object");
  HtpOptions options;
  Reader reader(json);
  VisitFields(options, reader);
  SPILLWAY_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace spillway::qnn::htp
