#include "eval/llama_cpp.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "base/subprocess.h"

namespace spillway {
namespace {

constexpr double kTimeoutSeconds = 3600;  // of one run

// Prints what llama-bench would. Arguments: model, threads, lengths of prompts, tokens to
// decode, depth.
constexpr char kPythonScript[] = R"(
import json, sys, time
import llama_cpp
model, threads, gen, depth = sys.argv[1], int(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5])
prompts = [int(n) for n in sys.argv[3].split(",") if int(n) > 0]
llm = llama_cpp.Llama(model_path=model, n_ctx=max(prompts + [gen]) + depth + 8, n_batch=2048,
                      n_threads=threads, n_threads_batch=threads, verbose=False)
def tokens(count):
    return [(i * 7919 + 13) % llm.n_vocab() for i in range(count)]
def measure(prompt, gen):
    llm.reset()
    if depth:
        llm.eval(tokens(depth))
    start = time.perf_counter()
    if prompt:
        llm.eval(tokens(prompt))
    for token in tokens(gen):
        llm.eval([token])
    return (prompt + gen) / (time.perf_counter() - start)
for prompt, decode in [(n, 0) for n in prompts] + ([(0, gen)] if gen else []):
    measure(prompt, decode)
    print(json.dumps({"n_prompt": prompt, "n_gen": decode, "n_depth": depth,
                      "avg_ts": measure(prompt, decode)}), flush=True)
)";

std::string FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = JoinPath(folder, name);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0 && !IsDirectory(file)) return file;
  }
  return "";
}

struct Finished {
  bool ok = false;
  std::string how, output;
};

Result<Finished> RunProgram(const std::string& program, const std::vector<std::string>& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto process, Subprocess::Start(program, arguments));
  SPILLWAY_ASSIGN_OR_RETURN(const ExitInfo exit, process->Wait(kTimeoutSeconds));
  return Finished{exit.signal == 0 && exit.exit_code == 0, exit.ToString(), process->Output()};
}

bool HasLlamaPackage(const std::string& python) {
  const Result<Finished> finished = RunProgram(python, {"-c", "import llama_cpp"});
  return finished.ok() && finished->ok;
}

Status CheckModel(const std::string& model) {
  if (model.empty()) {
    return InvalidArgumentError(
        "comparing with llama.cpp needs a model for it: --llama-model FILE.gguf");
  }
  if (!FileExists(model)) return NotFoundError(model + ": there is no such file");
  char magic[4] = {};
  std::ifstream(model, std::ios::binary).read(magic, sizeof(magic));
  if (std::string(magic, sizeof(magic)) == "GGUF") return OkStatus();
  return InvalidArgumentError(model + ": not a GGUF file, which llama.cpp wants");
}

std::string LastLines(const std::string& output) {
  constexpr size_t kKept = 600;
  return output.size() <= kKept ? output : "..." + output.substr(output.size() - kKept);
}

std::string List(std::span<const SpeedTest> tests, uint32_t SpeedTest::*field) {
  std::string list;
  for (const SpeedTest& test : tests) {
    if (test.*field > 0) list += (list.empty() ? "" : ",") + std::to_string(test.*field);
  }
  return list.empty() ? "0" : list;
}

}  // namespace

Result<LlamaCpp> LlamaCpp::Find(const std::string& program, const std::string& model) {
  SPILLWAY_RETURN_IF_ERROR(CheckModel(model));
  LlamaCpp found;
  found.model_ = model;
  const char* variable = std::getenv("LLAMA_BENCH");
  const std::string named = !program.empty() ? program : variable == nullptr ? "" : variable;
  if (!named.empty()) {
    if (access(named.c_str(), X_OK) != 0 || IsDirectory(named)) {
      return NotFoundError(fmt::format("{}: {} is no program that can be run", named,
                                       program.empty() ? "$LLAMA_BENCH" : "--llama-bench"));
    }
    found.program_ = named;
    return found;
  }
  found.program_ = FindInPath("llama-bench");
  if (!found.program_.empty()) return found;
  found.program_ = FindInPath("python3");
  found.is_python_ = true;
  if (!found.program_.empty() && HasLlamaPackage(found.program_)) return found;
  return NotFoundError(fmt::format(
      "llama.cpp is not here: --llama-bench is not given, LLAMA_BENCH is not set, PATH has no "
      "llama-bench, and {}. Build llama.cpp's target llama-bench and give its path, or install "
      "the Python package llama-cpp-python",
      found.program_.empty() ? std::string("no python3")
                             : found.program_ + " has no package llama_cpp"));
}

Result<std::vector<double>> LlamaCpp::Run(std::span<const SpeedTest> tests, size_t threads) const {
  const std::string prompts = List(tests, &SpeedTest::prompt);
  const std::string decode = List(tests, &SpeedTest::decode);
  const std::string depth = std::to_string(tests.empty() ? 0 : tests[0].depth);
  const std::string thread_count = std::to_string(threads);
  std::vector<std::string> arguments = {"-m", model_, "-t", thread_count, "-p", prompts,
                                        "-n", decode, "-r", "1",          "-o", "jsonl"};
  if (is_python_) {
    arguments = {"-c", kPythonScript, model_, thread_count, prompts, decode, depth};
  } else if (depth != "0") {
    arguments.insert(arguments.end(), {"-d", depth});
  }
  SPILLWAY_ASSIGN_OR_RETURN(const Finished finished, RunProgram(program_, arguments));
  if (!finished.ok) {
    return FailedPreconditionError(
        fmt::format("{} {}: {}", Describe(), finished.how, LastLines(finished.output)));
  }
  const auto rates = ReadLlamaBench(finished.output, tests);
  if (rates.ok()) return rates;
  return Status(rates.status().code(), Describe() + ": " + rates.status().message());
}

std::string LlamaCpp::Describe() const {
  return fmt::format("{} {}, {}", is_python_ ? "llama-cpp-python of" : "llama-bench", program_,
                     BaseName(model_));
}

Result<std::vector<double>> ReadLlamaBench(const std::string& output,
                                           std::span<const SpeedTest> tests) {
  std::vector<std::optional<double>> found(tests.size());
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    const auto number = [&](const char* key) {
      const auto at = json.find(key);
      return at != json.end() && at->is_number() ? at->get<double>() : 0.0;
    };
    const double rate = number("avg_ts");
    if (!std::isfinite(rate) || rate <= 0) continue;
    for (size_t i = 0; i < tests.size(); ++i) {
      const SpeedTest& test = tests[i];
      if (number("n_prompt") == test.prompt && number("n_gen") == test.decode &&
          number("n_depth") == test.depth) {
        found[i] = rate;
      }
    }
  }
  std::vector<double> rates;
  for (size_t i = 0; i < tests.size(); ++i) {
    if (!found[i].has_value()) {
      return CorruptDataError(fmt::format(
          "no figure for {} in what it printed; expected a JSON line with n_prompt {}, n_gen {} "
          "and avg_ts. It printed: {}",
          tests[i].name(), tests[i].prompt, tests[i].decode, LastLines(output)));
    }
    rates.push_back(*found[i]);
  }
  return rates;
}

}  // namespace spillway
