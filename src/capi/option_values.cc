#include "capi/option_values.h"

#include <charconv>
#include <optional>
#include <string>

#include "qnn/htp/option_names.h"

namespace spillway::capi {
namespace {

Status Expected(std::string_view kind, std::string_view value) {
  return InvalidArgumentError("is \"" + std::string(value) + "\"; expected " + std::string(kind));
}

template <typename Number>
Status SetNumber(Number& to, std::string_view kind, std::string_view value) {
  Number number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) return Expected(kind, value);
  to = number;
  return OkStatus();
}

Status Set(std::string& to, std::string_view value) {
  to = value;
  return OkStatus();
}
Status Set(uint32_t& to, std::string_view value) {
  return SetNumber(to, "a whole number from 0 to 4294967295", value);
}
Status Set(uint64_t& to, std::string_view value) {
  return SetNumber(to, "a whole number from 0 to 18446744073709551615", value);
}
Status Set(double& to, std::string_view value) { return SetNumber(to, "a number", value); }
Status Set(float& to, std::string_view value) { return SetNumber(to, "a number", value); }
Status Set(bool& to, std::string_view value) {
  if (value != "on" && value != "off") return Expected("\"on\" or \"off\"", value);
  to = value == "on";
  return OkStatus();
}
Status Set(HtpBuild& to, std::string_view value) {
  if (value == "auto") {
    to = HtpBuild::kAuto;
  } else if (value == "on") {
    to = HtpBuild::kOn;
  } else if (value == "off") {
    to = HtpBuild::kOff;
  } else {
    return Expected("\"auto\", \"on\" or \"off\"", value);
  }
  return OkStatus();
}
template <typename E>
Status SetWord(E& to, std::string_view value) {
  SPILLWAY_ASSIGN_OR_RETURN(to, qnn::htp::ParseOption<E>(value));
  return OkStatus();
}
Status Set(SlcAllocator& to, std::string_view value) { return SetWord(to, value); }
Status Set(PerformanceMode& to, std::string_view value) { return SetWord(to, value); }
// Numbers between commas.
template <typename... Numbers>
Status SetNumbers(std::string_view kind, std::string_view value, Numbers&... numbers) {
  size_t left = sizeof...(numbers);
  const auto next = [&](uint32_t& number) {
    const size_t comma = value.find(',');
    const bool last = --left == 0;
    if (last != (comma == std::string_view::npos)) return false;
    const std::string_view text = value.substr(0, comma);
    if (!last) value.remove_prefix(comma + 1);
    return SetNumber(number, kind, text).ok();
  };
  const std::string whole(value);
  return (next(numbers) && ...) ? OkStatus() : Expected(kind, whole);
}
Status Set(AttentionSink& to, std::string_view value) {
  return SetNumbers("SINK,BATCH", value, to.sink, to.batch);
}
Status Set(LookaheadSizes& to, std::string_view value) {
  return SetNumbers("NGRAM,WINDOW,GCAP", value, to.ngram, to.window, to.gcap);
}
template <typename T>
Status Set(std::optional<T>& to, std::string_view value) {
  T inner{};
  SPILLWAY_RETURN_IF_ERROR(Set(inner, value));
  to = std::move(inner);
  return OkStatus();
}

Status AddBias(RunOptions& run, std::string_view value) {
  const size_t equals = value.find('=');
  if (equals == std::string_view::npos) return Expected("\"TOKEN=BIAS\"", value);
  std::pair<uint32_t, float> bias;
  SPILLWAY_RETURN_IF_ERROR(Set(bias.first, value.substr(0, equals)));
  SPILLWAY_RETURN_IF_ERROR(Set(bias.second, value.substr(equals + 1)));
  run.logit_bias.push_back(bias);
  return OkStatus();
}

Status AddCalibration(CompileOptions& compile, std::string_view value) {
  compile.calib_paths.emplace_back(value);
  return OkStatus();
}

// Of both structs.
template <typename T>
Status SetBoth(T& first, T& second, std::string_view value) {
  SPILLWAY_RETURN_IF_ERROR(Set(first, value));
  second = first;
  return OkStatus();
}

struct Entry {
  std::string_view name;
  Status (*set)(Options& options, std::string_view value);
};

#define SPILLWAY_OPTION(name, field)                                             \
  {                                                                              \
    name, [](Options& o, std::string_view value) { return Set(o.field, value); } \
  }

constexpr Entry kEntries[] = {
    SPILLWAY_OPTION("soc", compile.htp.soc),
    SPILLWAY_OPTION("mode", compile.mode),
    SPILLWAY_OPTION("prefill_ar_len", compile.prefill_ar_len),
    SPILLWAY_OPTION("context_len", compile.context_len),
    SPILLWAY_OPTION("recipe", compile.recipe),
    SPILLWAY_OPTION("target_bits", compile.target_bits),
    SPILLWAY_OPTION("target_sqnr_db", compile.target_sqnr_db),
    SPILLWAY_OPTION("max_raised_bytes", compile.max_raised_bytes),
    SPILLWAY_OPTION("recipe_output", compile.recipe_output),
    SPILLWAY_OPTION("kv_bits", compile.kv_bits),
    {"calib_path",
     [](Options& o, std::string_view value) { return AddCalibration(o.compile, value); }},
    SPILLWAY_OPTION("calib_tokens", compile.calib_tokens),
    SPILLWAY_OPTION("prefix_tokens", compile.prefix_tokens),
    SPILLWAY_OPTION("num_shards", compile.num_shards),
    SPILLWAY_OPTION("jobs", compile.jobs),
    SPILLWAY_OPTION("with_simulator", compile.with_simulator),
    SPILLWAY_OPTION("htp", compile.htp_build),
    SPILLWAY_OPTION("slc_allocator", compile.htp.slc_allocator),
    SPILLWAY_OPTION("weight_sharing", compile.htp.weight_sharing),
    SPILLWAY_OPTION("optimization_level", compile.htp.optimization_level),
    SPILLWAY_OPTION("executor", session.executor),
    SPILLWAY_OPTION("verify", session.verify),
    SPILLWAY_OPTION("online_prepare", session.htp.online_prepare),
    SPILLWAY_OPTION("performance_mode", session.htp.performance),
    {"attention_sink",
     [](Options& o, std::string_view value) {
       return SetBoth(o.compile.attention_sink, o.session.attention_sink, value);
     }},
    {"lookahead",
     [](Options& o, std::string_view value) {
       SPILLWAY_RETURN_IF_ERROR(Set(o.compile.lookahead, value));
       o.session.lookahead = o.compile.lookahead;
       return OkStatus();
     }},
    {"qnn_lib_dir",
     [](Options& o, std::string_view value) {
       return SetBoth(o.compile.qnn_lib_dir, o.session.qnn_lib_dir, value);
     }},
    {"threads",
     [](Options& o, std::string_view value) {
       return SetBoth(o.compile.threads, o.session.threads, value);
     }},
    SPILLWAY_OPTION("max_new_tokens", run.max_new_tokens),
    SPILLWAY_OPTION("repetition_penalty", run.repetition_penalty),
    SPILLWAY_OPTION("presence_penalty", run.presence_penalty),
    {"logit_bias", [](Options& o, std::string_view value) { return AddBias(o.run, value); }},
    SPILLWAY_OPTION("temperature", run.temperature),
    SPILLWAY_OPTION("top_k", run.top_k),
    SPILLWAY_OPTION("top_p", run.top_p),
    SPILLWAY_OPTION("min_p", run.min_p),
    SPILLWAY_OPTION("seed", run.seed),
    SPILLWAY_OPTION("ignore_eos", run.ignore_eos),
    SPILLWAY_OPTION("system_prompt", run.system_prompt),
    SPILLWAY_OPTION("raw_prompt", run.raw_prompt),
    SPILLWAY_OPTION("parse_special", run.parse_special),
};

#undef SPILLWAY_OPTION

}  // namespace

Status SetOption(Options& options, std::string_view name, std::string_view value) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) {
      const Status status = entry.set(options, value);
      return status.ok()
                 ? status
                 : InvalidArgumentError("option " + std::string(name) + ": " + status.message());
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return InvalidArgumentError("there is no option \"" + std::string(name) + "\"; there are " +
                              known);
}

}  // namespace spillway::capi
