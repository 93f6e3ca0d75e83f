// spillway compile: a GGUF file to a package.

#include "spillway/compile.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/file.h"
#include "checks.h"
#include "command.h"
#include "htp_flags.h"
#include "interrupt.h"
#include "sink_flag.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  # For a Snapdragon 8 Elite: prompts 32 tokens a call, a context of 512 tokens,\n"
    "  # transfers kept in the system-level cache.\n"
    "  spillway compile model.gguf -o pkg/ --soc SM8750 --prefill-ar-len 32 \\\n"
    "    --context-len 512 --slc-allocator\n"
    "  # What would it take?\n"
    "  spillway compile model.gguf --soc SM8750 --dry-run\n"
    "  # For this machine's processor only, without the vendor's libraries.\n"
    "  spillway compile model.gguf -o pkg/ --htp off\n"
    "  # 4-bit weights, the most sensitive ones with 8 bits, at most 5 on average.\n"
    "  spillway compile model.gguf -o pkg/ --recipe mixed --save-recipe found.json\n"
    "  # Also a context that the vendor's x86 simulator can load.\n"
    "  spillway compile model.gguf -o pkg/ --with-simulator\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

class CompileCommand : public Command {
 public:
  explicit CompileCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  void AddModelOptions(CLI::App& app);
  void AddQuantisationOptions(CLI::App& app);
  void AddVendorOptions(CLI::App& app);
  Status ReadGraphOptions();
  Status CheckArguments() const;

  CompileOptions options_;
  bool dry_run_ = false;
  std::vector<uint32_t> lookahead_ = {3, 4, 4};
  std::string num_shards_ = "auto";
  double shard_limit_gb_ = 3.5;
  double max_raised_mb_ = 0;
};

CompileCommand::CompileCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("compile", "Compile a GGUF model to a package");
  app.fallthrough();
  app.add_option("MODEL", options_.model_path, "The model, a GGUF file")->required();
  app.add_option("-o,--output", options_.output_path, "The package, a folder; replaced as a whole");
  app.add_flag("--dry-run", dry_run_, "Only say what the compile would take");
  app.add_option("--threads", options_.threads, "Threads of calibration; 0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--jobs", options_.jobs,
                 "Contexts to compile at the same time; 0: as processors and memory allow")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("!--no-cache", options_.use_cache,
               "Neither take finished contexts from the cache nor keep them there");
  app.add_option("--cache-dir", options_.cache_dir,
                 "Folder of the cache; default: see 'spillway cache --help'");
  AddModelOptions(app);
  AddQuantisationOptions(app);
  AddVendorOptions(app);
  AddHtpFlags(app, options_.htp);
  app.footer(kExamples);
}

void CompileCommand::AddModelOptions(CLI::App& app) {
  const std::string group = "Graphs";
  app.add_option("--mode", options_.mode,
                 "hybrid: a graph for prompts and one for single tokens; kv: only the latter;\n"
                 "lookahead: the latter takes the tokens of a step of lookahead decoding")
      ->check(CLI::IsMember({"hybrid", "kv", "lookahead"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--lookahead", lookahead_,
                 "Mode lookahead: tokens of an n-gram, window, and most n-grams to check a step")
      ->delimiter(',')
      ->expected(3)
      ->capture_default_str()
      ->group(group);
  app.add_option("--prefill-ar-len", options_.prefill_ar_len, "Tokens of a prompt in one call")
      ->capture_default_str()
      ->group(group);
  app.add_option("--context-len", options_.context_len, "Tokens that prompt and answer may have")
      ->capture_default_str()
      ->group(group);
  AddSinkFlag(app, options_.attention_sink,
              "Also make a graph that makes room in a full context on the chip, in a context of\n"
              "its own: forgets BATCH tokens after the first SINK (after the prefix, where there\n"
              "is one). Conversations then go on by default")
      ->group(group);
  app.add_option("--num-shards", num_shards_,
                 "Contexts to split the layers into, evenly by bytes; auto: the smallest number\n"
                 "for which no context needs more than --shard-limit")
      ->capture_default_str()
      ->group(group);
  app.add_option("--shard-limit", shard_limit_gb_, "Gigabytes that one context may need")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--io", options_.io_profile,
                 "Inputs as the own runtime (spillway) or as ExecuTorch's expects them")
      ->check(CLI::IsMember({"spillway", "executorch"}))
      ->capture_default_str()
      ->group(group);
}

void CompileCommand::AddQuantisationOptions(CLI::App& app) {
  const std::string group = "Quantisation";
  app.add_option("--quant,--recipe", options_.recipe,
                 "Types of activations and weights: a built-in recipe ('spillway recipes') or a\n"
                 "JSON file; 16a8w: 16-bit activations, 8-bit weights")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--target-bits", options_.target_bits,
         "Mixed precision: raise weights from 4 to 8 bits where it pays most, to at most so\n"
         "many bits a weight on average; default: what the recipe says (mixed: 5)")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--target-sqnr", options_.target_sqnr_db,
                 "The same until the logits have this signal to noise, in dB")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--max-raised-mb", max_raised_mb_,
                 "The same while the raised weights have at most so many megabytes")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--save-recipe", options_.recipe_output,
                 "Write the recipe to this file as it was used, with what was found")
      ->group(group);
  app.add_option("--kv-bits", options_.kv_bits,
                 "Bits of the KV cache's values: 8 or 16; default: as the recipe says")
      ->check(CLI::IsMember({8, 16}))
      ->group(group);
  app.add_option("--calib,--calib-text", options_.calib_paths,
                 "Files to calibrate with, like what the model will see: text, or conversations\n"
                 "(*.json, *.jsonl with messages); several are used in turn; default: a built-in "
                 "text")
      ->take_all()
      ->group(group);
  app.add_option("--calib-tokens", options_.calib_tokens,
                 "At most so many tokens of it; default: 1024, or\n"
                 "4096 for a recipe whose weights are chosen with activations (gptq, mse)")
      ->group(group);
  app.add_option("--prefix-tokens", options_.prefix_tokens,
                 "Tokens whose keys and values are kept in the cache as constants: auto (the chat\n"
                 "template's first, when its activations are massive), none, or ids (1,2)")
      ->capture_default_str()
      ->group(group);
}

void CompileCommand::AddVendorOptions(CLI::App& app) {
  const std::string group = "Vendor's libraries";
  AddHtpBuildFlag(app, options_.htp_build, "Make context binaries")->group(group);
  AddLibraryDirFlag(app, options_.qnn_lib_dir)->group(group);
  app.add_flag("--with-simulator", options_.with_simulator,
               "Also make a plain context for the vendor's x86 simulator")
      ->group(group);
  app.add_flag("--in-process", options_.in_process,
               "Run the vendor's library in this process: faster to debug, unsafe")
      ->group(group);
  app.add_option("--vendor-timeout", options_.vendor_timeout_s,
                 "Seconds that the vendor's compiler may take for one context")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
}

Status CompileCommand::ReadGraphOptions() {
  options_.shard_limit_bytes = static_cast<uint64_t>(shard_limit_gb_ * 1e9);
  options_.max_raised_bytes = static_cast<uint64_t>(max_raised_mb_ * 1e6);
  options_.num_shards = 0;
  options_.lookahead = {lookahead_[0], lookahead_[1], lookahead_[2]};
  if (num_shards_ == "auto") return OkStatus();
  const char* const end = num_shards_.data() + num_shards_.size();
  const auto parsed = std::from_chars(num_shards_.data(), end, options_.num_shards);
  if (parsed.ec == std::errc() && parsed.ptr == end && options_.num_shards > 0) return OkStatus();
  return InvalidArgumentError("--num-shards is '" + num_shards_ +
                              "': expected auto or a number from 1");
}

Status CompileCommand::CheckArguments() const {
  SPILLWAY_RETURN_IF_ERROR(CheckSoc(options_.htp.soc));
  if (dry_run_) return OkStatus();
  if (options_.output_path.empty()) {
    return InvalidArgumentError("-o is missing: the folder to write the package to");
  }
  SPILLWAY_RETURN_IF_ERROR(CheckReplaceable(options_.output_path));
  // A folder that the user names is meant to be used.
  if (options_.htp_build == HtpBuild::kOn ||
      (options_.htp_build == HtpBuild::kAuto && !options_.qnn_lib_dir.empty())) {
    SPILLWAY_RETURN_IF_ERROR(CheckVendorLibrary(options_.qnn_lib_dir));
  }
  return OkStatus();
}

Status CompileCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(ReadGraphOptions());
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  if (dry_run_) {
    SPILLWAY_ASSIGN_OR_RETURN(const CompileEstimate estimate, EstimateCompile(options_));
    return console.Print(console.json ? estimate.ToJson() + "\n" : estimate.ToText());
  }
  const EndOnInterrupt end_on_interrupt(console);
  std::unique_ptr<Progress> progress = console.MakeProgress();
  auto report = Compile(options_, [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  });
  progress.reset();
  if (!report.ok()) return report.status();
  return console.Print(console.json ? report->ToJson() + "\n" : report->ToText());
}

}  // namespace

std::unique_ptr<Command> AddCompileCommand(CLI::App& program) {
  return std::make_unique<CompileCommand>(program);
}

}  // namespace spillway::cli
