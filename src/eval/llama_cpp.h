// The peer of the host executor: llama.cpp's own benchmark, run as a program.

#ifndef SPILLWAY_EVAL_LLAMA_CPP_H_
#define SPILLWAY_EVAL_LLAMA_CPP_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "eval/speed.h"
#include "spillway/status.h"

namespace spillway {

class LlamaCpp {
 public:
  // Looks for llama-bench: `program` when given, then $LLAMA_BENCH, then PATH; without it
  // for python3 with the package llama_cpp. kNotFound says where it looked and how to get
  // one; kInvalidArgument when `model` is no GGUF file.
  static Result<LlamaCpp> Find(const std::string& program, const std::string& model);

  // Runs the tests once each (after a run that is not counted), with `threads` threads.
  // Returns tokens a second in the order of the tests, which share one depth and have at
  // most one that decodes. kFailedPrecondition with its last words when it fails.
  Result<std::vector<double>> Run(std::span<const SpeedTest> tests, size_t threads) const;

  // "llama-bench /usr/bin/llama-bench, model.gguf".
  std::string Describe() const;

 private:
  LlamaCpp() = default;

  std::string program_;  // llama-bench, or python3
  bool is_python_ = false;
  std::string model_;
};

// What llama-bench printed as JSON lines, other lines between them: tokens a second of each
// test. kCorruptData names the test that is not there.
Result<std::vector<double>> ReadLlamaBench(const std::string& output,
                                           std::span<const SpeedTest> tests);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_LLAMA_CPP_H_
