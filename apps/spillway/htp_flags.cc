#include "htp_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "qnn/htp/option_names.h"
#include "qnn/htp/options.h"

namespace spillway::cli {
namespace {

using qnn::htp::OptionName;
using qnn::htp::OptionNames;
using qnn::htp::ParseOption;

constexpr char kCompiler[] = "HTP compiler";
constexpr char kDevice[] = "HTP on the device";
constexpr char kLogs[] = "Log, profile, debugging";

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// The words in lines of the help's width.
std::string Wrapped(const std::string& words) {
  constexpr size_t kWidth = 80;
  std::string text;
  size_t column = 0;
  size_t start = 0;
  while (start < words.size()) {
    const size_t end = std::min(words.find(' ', start), words.size() - 1) + 1;
    if (column + end - start > kWidth) {
      text.back() = '\n';  // in place of the blank
      column = 0;
    }
    text += words.substr(start, end - start);
    column += end - start;
    start = end;
  }
  return text;
}

// "--name WORD" with the words of option_names.h.
template <typename E, typename Value>
CLI::Option* AddWords(CLI::App& app, const char* group, const std::string& name, Value& value,
                      const std::string& description) {
  const auto check = [](const std::string& text) {
    const Result<E> parsed = ParseOption<E>(text);
    return parsed.ok() ? std::string() : parsed.status().message();
  };
  const auto set = [&value](const std::string& text) {
    const Result<E> parsed = ParseOption<E>(text);
    if (parsed.ok()) value = *parsed;
  };
  return app
      .add_option_function<std::string>(name, set, description + ":\n" + Wrapped(OptionNames<E>()))
      ->check(check)
      ->group(group);
}

template <typename E>
void AddChoice(CLI::App& app, const char* group, const std::string& name, E& value,
               const std::string& description) {
  AddWords<E>(app, group, name, value, description)->default_str(std::string(OptionName(value)));
}

template <typename E>
void AddChoice(CLI::App& app, const char* group, const std::string& name, std::optional<E>& value,
               const std::string& description) {
  AddWords<E>(app, group, name, value, description);
}

// "--name", "--name=on" or "--name=off"; without it the value stays unset.
void AddSwitch(CLI::App& app, const char* group, const std::string& name,
               std::optional<bool>& value, const std::string& description) {
  app.add_flag_function(
         name, [&value](int64_t given) { value = given > 0; }, description)
      ->group(group);
}

void AddSwitch(CLI::App& app, const char* group, const std::string& name, bool& value,
               const std::string& description) {
  app.add_flag(name, value, description + "; default: off")->group(group);
}

// "--name TEXT", any number of times; `parse` makes a T of each TEXT.
template <typename T>
void AddRepeated(CLI::App& app, const char* group, const std::string& name, std::vector<T>& values,
                 Result<T> (*parse)(std::string_view), const std::string& type,
                 const std::string& description) {
  const auto check = [parse](const std::string& text) {
    const Result<T> parsed = parse(text);
    return parsed.ok() ? std::string() : parsed.status().message();
  };
  const auto set = [parse, &values](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      Result<T> parsed = parse(text);
      if (parsed.ok()) values.push_back(std::move(parsed).value());
    }
  };
  app.add_option_function<std::vector<std::string>>(name, set, description)
      ->check(check)
      ->allow_extra_args(false)
      ->type_name(type)
      ->group(group);
}

Result<OpPackage> ParseOpPackage(std::string_view text) {
  SPILLWAY_ASSIGN_OR_RETURN(OpPackage package, qnn::htp::ParseOpPackage(text));
  package.path = AbsolutePath(package.path);
  return package;
}

void AddCompilerFlags(CLI::App& app, HtpOptions& options) {
  app.add_option("--soc", options.soc, "The chip, by name or the vendor's number")
      ->capture_default_str()
      ->group(kCompiler);
  // The number of the word, which the parser reads as an enumeration.
  const auto read_slc = [](std::string& text) {
    const Result<SlcAllocator> parsed = ParseOption<SlcAllocator>(text == "true" ? "on" : text);
    if (!parsed.ok()) return parsed.status().message();
    text = std::to_string(static_cast<int>(*parsed));
    return std::string();
  };
  app.add_flag("--slc-allocator", options.slc_allocator,
               "Keep transfers in the system-level cache. Alone or =on: always; =auto: where the\n"
               "SoC is known to profit and a graph has something to keep; =off: never (default)")
      ->transform(CLI::Validator(read_slc, ""))
      ->group(kCompiler);
  app.add_option("--optimization-level", options.optimization_level,
                 "How hard the vendor's compiler tries: 1 to 3")
      ->check(CLI::Range(1, 3))
      ->capture_default_str()
      ->group(kCompiler);
  app.add_option("--decode-optimization-level", options.decode_optimization_level,
                 "The same for kv_forward; default: 2 where it shares weights, else the same")
      ->check(CLI::Range(1, 3))
      ->group(kCompiler);
  app.add_option("--vtcm-mb", options.vtcm_mb, "On-chip memory to use; 0: all that there is")
      ->capture_default_str()
      ->group(kCompiler);
  app.add_option("--hvx-threads", options.hvx_threads, "Vector threads; 0: vendor's default")
      ->capture_default_str()
      ->group(kCompiler);
  AddChoice(app, kCompiler, "--precision", options.precision,
            "How tensors that are not quantised are computed");
  AddSwitch(app, kCompiler, "--weight-sharing", options.weight_sharing,
            "Store weights of several graphs once: =on or =off; default: on for hybrid");
  AddSwitch(app, kCompiler, "--multi-contexts", options.multi_contexts,
            "One spill-fill buffer for all shards: =on or =off; default: on for several");
  AddSwitch(app, kCompiler, "--dlbc", options.dlbc,
            "Compress activations on their way to DDR (DLBC)");
  AddSwitch(app, kCompiler, "--dlbc-weights", options.dlbc_weights,
            "Compress weights in DDR (DLBC)");
  AddSwitch(app, kCompiler, "--fold-relu", options.fold_relu,
            "Fold ReLU into the convolution before it: =on or =off; default: the vendor's (on)");
  AddSwitch(app, kCompiler, "--conv-hmx", options.conv_hmx,
            "Short-depth convolutions on the matrix unit: =on or =off; default: the vendor's (on)");
  AddRepeated(app, kCompiler, "--finalize-config", options.finalize_config,
              qnn::htp::ParseFinalizeConfig, "KEY=VALUE",
              "A switch of the vendor's compiler: a number, true, false or text; repeatable");
  AddRepeated(app, kCompiler, "--op-package", options.op_packages, ParseOpPackage,
              "PATH:PROVIDER[:TARGET]",
              "A library of further operations, the function that it exports, and CPU or HTP;\n"
              "repeatable");
  AddSwitch(app, kCompiler, "--online-prepare", options.online_prepare,
            "No context binary: check every operation here, build the graphs on the device");
}

void AddDeviceFlags(CLI::App& app, HtpOptions& options) {
  AddChoice(app, kDevice, "--performance-mode", options.performance,
            "Clocks against power; default: the vendor's behaviour");
  app.add_option("--rpc-polling-us", options.rpc_polling_us,
                 "Microseconds to poll for an answer before sleeping, 0 to 9999;\n"
                 "default: 9999 for burst and the high performance modes, else 0")
      ->group(kDevice);
  app.add_option("--rpc-control-latency-us", options.rpc_control_latency_us,
                 "Microseconds that a call to the DSP may take to arrive;\n"
                 "default: 100 for burst and the high performance modes")
      ->group(kDevice);
  app.add_option("--sleep-latency-us", options.sleep_latency_us,
                 "Microseconds that the DSP may take to wake up, 1 to 65535; default: by the\n"
                 "mode, 40 (burst) to 1000")
      ->group(kDevice);
  AddChoice(app, kDevice, "--graph-priority", options.priority,
            "Whose turn it is when graphs wait for the HTP");
  AddChoice(app, kDevice, "--pd-session", options.pd_session,
            "Process domain on the DSP; signed needs a signed library on the device");
}

void AddLogFlags(CLI::App& app, HtpOptions& options) {
  AddChoice(app, kLogs, "--profile-level", options.profile_level,
            "What the vendor measures, while it compiles (see the report) and when it runs");
  AddChoice(app, kLogs, "--vendor-log-level", options.log_level,
            "What the vendor logs (shown with --log-level trace); auto: as much as the report\n"
            "needs; less than verbose leaves DDR traffic or SLC out of it");
  app.add_option_function<std::string>(
         "--saver-dir",
         [&options](const std::string& path) { options.saver_dir = AbsolutePath(path); },
         "Record the vendor calls as C source in this folder instead of compiling")
      ->group(kLogs);
  AddSwitch(app, kLogs, "--dump-intermediates", options.dump_intermediates,
            "Make every internal tensor an output of the graphs");
}

}  // namespace

void AddHtpFlags(CLI::App& app, HtpOptions& options) {
  AddCompilerFlags(app, options);
  AddDeviceFlags(app, options);
  AddLogFlags(app, options);
}

void AddHtpRunFlags(CLI::App& app, HtpRunOptions& options) {
  const char* group = "Executor htp (default: as the package was compiled)";
  AddChoice(app, group, "--performance-mode", options.performance,
            "Clocks against power, from the load to the end");
  AddChoice(app, group, "--graph-priority", options.priority,
            "Whose turn it is when graphs wait for the HTP");
  AddChoice(app, group, "--pd-session", options.pd_session,
            "Process domain on the DSP; signed needs a signed library on the device");
  AddChoice(app, group, "--profile-level", options.profile_level,
            "What the vendor measures of each call; --stats and --json print the sums");
  AddChoice(app, group, "--vendor-log-level", options.log_level,
            "What the vendor logs (shown with --log-level trace)");
  app.add_flag("--online-prepare", options.online_prepare,
               "Build the graphs here instead of loading context binaries: seconds to minutes,\n"
               "also for a package whose binaries the x86-64 simulator cannot load")
      ->group(group);
}

}  // namespace spillway::cli
