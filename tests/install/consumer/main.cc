// A program that uses the installed library: asks for a compile that must fail in
// the expected way.

#include <spillway/compile.h>
#include <spillway/status.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  spillway::CompileOptions options;
  options.model_path = argv[1];
  const auto estimate = spillway::EstimateCompile(options);
  if (estimate.ok()) {
    std::puts("a model that is not there has an estimate");
    return 1;
  }
  std::puts(estimate.status().ToString().c_str());
  return estimate.status().code() == spillway::StatusCode::kNotFound ? 0 : 1;
}
