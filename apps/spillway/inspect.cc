// spillway inspect: what is in a GGUF file, a package, a context binary or a compile
// spec.

#include "inspect.h"

#include <CLI/CLI.hpp>
#include <fstream>

#include "base/file.h"
#include "command.h"
#include "package/compile_spec.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "The kind is told by the content: a GGUF model, a package, or a context binary of the\n"
    "vendor (which needs the vendor's libQnnSystem.so to be read). A file named *.spec is a\n"
    "compile spec.\n\n"
    "Examples:\n"
    "  spillway inspect model.gguf --tensors\n"
    "  spillway inspect pkg/ --graphs\n"
    "  spillway inspect pkg/ --encodings\n"
    "  spillway inspect pkg/context_0.bin --json\n"
    "  spillway inspect pkg/shard_0.spec\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

bool StartsWithGgufMagic(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  InspectOptions options_;
};

InspectCommand::InspectCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "inspect", "Show what is in a model, package, context binary or compile spec");
  app.fallthrough();
  app.add_option("PATH", options_.path,
                 "A GGUF file, a package folder, a context binary or a compile spec")
      ->required();
  app.add_flag("--tensors", options_.tensors, "List every tensor");
  app.add_flag("--graphs", options_.graphs, "List the inputs and outputs of every graph");
  app.add_flag("--encodings", options_.encodings,
               "Show the type and encoding of every tensor of a package");
  app.add_option("--qnn-lib-dir", options_.qnn_lib_dir,
                 "Folder of libQnnSystem.so; default: $SPILLWAY_QNN_LIB_DIR, then .deps/");
  app.footer(kExamples);
}

Status InspectCommand::Run(Console& console) {
  if (IsDirectory(options_.path)) {
    return options_.encodings ? InspectEncodings(options_, console)
                              : InspectPackage(options_, console);
  }
  if (options_.encodings) {
    return InvalidArgumentError(options_.path + ": --encodings shows a package; this is a file");
  }
  if (!FileExists(options_.path)) {
    return NotFoundError(options_.path + ": there is no such file or folder");
  }
  if (BaseName(options_.path) == "manifest.json") {
    return InvalidArgumentError(options_.path +
                                ": is a file of a package; give the folder that holds it");
  }
  if (StartsWithGgufMagic(options_.path)) return InspectGguf(options_, console);
  if (options_.path.ends_with(kCompileSpecSuffix)) return InspectSpec(options_, console);
  return InspectContext(options_, console);
}

}  // namespace

std::unique_ptr<Command> AddInspectCommand(CLI::App& program) {
  return std::make_unique<InspectCommand>(program);
}

}  // namespace spillway::cli
