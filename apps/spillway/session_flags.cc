#include "session_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checks.h"
#include "htp_flags.h"
#include "sink_flag.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

using TokenBias = std::pair<uint32_t, float>;

// "TOKEN=BIAS"; nothing when it is something else.
std::optional<TokenBias> ParseBias(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return std::nullopt;
  uint32_t token = 0;
  double bias = 0;
  if (!CLI::detail::lexical_cast(text.substr(0, equals), token)) return std::nullopt;
  if (!CLI::detail::lexical_cast(text.substr(equals + 1), bias)) return std::nullopt;
  return TokenBias{token, static_cast<float>(bias)};
}

void AddBiasFlag(CLI::App& app, const char* group, RunOptions& options) {
  const auto check = [](const std::string& text) {
    return ParseBias(text).has_value()
               ? std::string()
               : "'" + text + "' is not TOKEN=BIAS, like 17=-2.5 or 17=-inf";
  };
  const auto set = [&options](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      if (const auto bias = ParseBias(text)) options.logit_bias.push_back(*bias);
    }
  };
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias", set, "Add BIAS to the logit of a token, by id; -inf bans it; repeatable")
      ->check(check)
      ->allow_extra_args(false)
      ->type_name("TOKEN=BIAS")
      ->group(group);
}

// How the context goes on when it is full, and how many tokens a call takes.
void AddDecodingFlags(CLI::App& app, SessionOptions& options) {
  using Numbers = std::vector<uint32_t>;
  AddSinkFlag(app, options.attention_sink,
              "When the context is full, forget BATCH tokens after the first SINK (after the\n"
              "package's prefix, where it has one) and go on; default: as the package was\n"
              "compiled; 0,0: an answer ends there");
  app.add_option_function<Numbers>(
         "--lookahead",
         [&options](const Numbers& n) {
           options.lookahead = LookaheadSizes{n[0], n[1], n[2]};
         },
         "Several tokens a call, the same answer: sizes for a package of mode lookahead;\n"
         "default: those it was compiled for; 0,0,0: one token a call")
      ->delimiter(',')
      ->expected(3)
      ->type_name("NGRAM,WINDOW,GCAP");
}

}  // namespace

void AddSessionFlags(CLI::App& app, SessionOptions& options) {
  app.add_option("PACKAGE", options.package_path, "The package, a folder")->required();
  app.add_option("--executor", options.executor,
                 "host: this processor, in the chip's integers; htp: the vendor's library")
      ->check(CLI::IsMember({"host", "htp"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of the host executor; 0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLibraryDirFlag(app, options.qnn_lib_dir);
  AddDecodingFlags(app, options);
  AddHtpRunFlags(app, options.htp);
}

// The parser itself takes a number that is too large for the largest one.
std::string CheckSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return "'" + text + "' is not a whole number from 0 to 2^64 - 1";
}

void AddAnswerFlags(CLI::App& app, RunOptions& options) {
  const char* group = "Answer";
  app.add_option("-n,--max-new-tokens", options.max_new_tokens,
                 "At most so many tokens; 0: until the model ends or the context is full")
      ->capture_default_str()
      ->group(group);
  app.add_option("--repetition-penalty", options.repetition_penalty,
                 "Divides the positive logits of tokens of the prompt and the answer, multiplies\n"
                 "the others; 1: off")
      ->capture_default_str()
      ->group(group);
  app.add_option("--presence-penalty", options.presence_penalty,
                 "Taken off the logits of tokens that the answer has; 0: off")
      ->capture_default_str()
      ->group(group);
  AddBiasFlag(app, group, options);
  app.add_option("-t,--temperature", options.temperature, "0: the best token always")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-k", options.top_k, "Only the k best tokens; 0: all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-p", options.top_p,
                 "Only the best tokens that together reach p; 1: all, 0: the best")
      ->capture_default_str()
      ->group(group);
  app.add_option("--min-p", options.min_p,
                 "Only tokens with this share of the best one's probability; 0: all")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", options.seed, "The same seed gives the same answer")
      ->check(CheckSeed)
      ->capture_default_str()
      ->group(group);
  app.add_flag("--ignore-eos", options.ignore_eos, "Go on after an end token")->group(group);
}

Result<std::unique_ptr<Session>> OpenSession(SessionOptions options, const Console& console) {
  if (!FileExists(options.package_path)) {
    return NotFoundError(options.package_path + ": there is no such package");
  }
  if (options.executor == "host" && options.htp != HtpRunOptions()) {
    return InvalidArgumentError(
        "--performance-mode, --graph-priority, --pd-session, --profile-level, --vendor-log-level "
        "and --online-prepare are for --executor htp");
  }
  if (options.executor == "htp") {
    SPILLWAY_RETURN_IF_ERROR(CheckVendorLibrary(options.qnn_lib_dir));
  }
  // A load is short: its stages are of no interest in a log file, unless it builds graphs.
  const bool shown = options.htp.online_prepare || isatty(STDERR_FILENO) == 1;
  const std::unique_ptr<Progress> progress = shown ? console.MakeProgress() : nullptr;
  ReportProgress(progress.get(), "load " + options.package_path, -1);
  options.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  };
  return Session::Open(options);
}

std::unique_ptr<Progress> MakePromptProgress(const Console& console) {
  return isatty(STDERR_FILENO) == 1 ? console.MakeProgress() : nullptr;
}

}  // namespace spillway::cli
