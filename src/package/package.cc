// Opening packages.

#include "package/package.h"

#include <fmt/format.h>

#include <algorithm>

#include "package/files.h"
#include "package/json_fields.h"

namespace spillway {
namespace {

constexpr std::string_view kAdvice = "compile the model again";

Result<PackageManifest> ReadManifestFile(const std::string& folder) {
  if (!FileExists(folder)) {
    return NotFoundError(
        fmt::format("there is no package at '{}'; give the folder that compile wrote", folder));
  }
  if (!IsDirectory(folder)) {
    return InvalidArgumentError(fmt::format(
        "'{}' is a file; a package is a folder, give the one that compile wrote", folder));
  }
  const std::string path = JoinPath(folder, kManifestFile);
  if (!FileExists(path)) {
    return InvalidArgumentError(
        fmt::format("'{}' is not a package: it has no {}; give the folder that compile wrote",
                    folder, kManifestFile));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return PackageManifest::FromJson(text, path);
}

Status CheckSizes(const std::string& folder, const std::vector<PackageFile>& files) {
  for (const PackageFile& file : files) {
    const std::string path = JoinPath(folder, file.name);
    if (!FileExists(path)) {
      return CorruptDataError(fmt::format("'{}' is missing from the package", path));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(path));
    if (bytes == file.bytes) continue;
    return CorruptDataError(fmt::format("'{}' has {} bytes; expected {}", path, bytes, file.bytes));
  }
  return OkStatus();
}

Status CheckHashes(const std::string& folder, const std::vector<PackageFile>& expected,
                   const MappedFiles& mapped) {
  std::vector<PackageFile> found = expected;
  SPILLWAY_RETURN_IF_ERROR(MeasureFiles(folder, mapped, found));
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].hash == expected[i].hash) continue;
    return CorruptDataError(fmt::format("'{}' is damaged: its hash is {}; expected {}",
                                        JoinPath(folder, found[i].name), found[i].hash,
                                        expected[i].hash));
  }
  return OkStatus();
}

std::vector<PackageFile> FilesToCheck(const PackageManifest& manifest, const OpenOptions& options) {
  const std::vector<std::string> read = FilesToRead(manifest);
  std::vector<PackageFile> files;
  for (const PackageFile& file : manifest.files) {
    const bool is_read = std::find(read.begin(), read.end(), file.name) != read.end();
    if (options.verify_contexts || is_read) files.push_back(file);
  }
  return files;
}

Status WithAdvice(const Status& status) {
  if (status.code() != StatusCode::kCorruptData) return status;
  return CorruptDataError(fmt::format("{}; {}", status.message(), kAdvice));
}

}  // namespace

Result<std::shared_ptr<const Package>> Package::Open(const std::string& path, OpenOptions options) {
  Result<PackageManifest> manifest = ReadManifestFile(path);
  if (!manifest.ok()) return WithAdvice(manifest.status());
  SPILLWAY_RETURN_IF_ERROR(WithAdvice(CheckFileList(*manifest, JoinPath(path, kManifestFile))));
  std::vector<PackageFile> listed = FilesToCheck(*manifest, options);
  SPILLWAY_RETURN_IF_ERROR(WithAdvice(CheckSizes(path, listed)));
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFiles files, MapFiles(path, *manifest));
  const std::shared_ptr<Package> package(new Package());
  package->path_ = path;
  // The readers stand damaged files, so hashing need not come first.
  if (options.verify) {
    package->verified_ = std::async(std::launch::async, [path, files, listed = std::move(listed)] {
                           return WithAdvice(CheckHashes(path, listed, files));
                         }).share();
  }
  Result<PackageContents> contents = ReadContents(path, *manifest, files);
  // What is wrong with the contents of a damaged file does not matter.
  if (!contents.ok() || !options.verify_in_background) {
    SPILLWAY_RETURN_IF_ERROR(package->Verified());
  }
  if (!contents.ok()) return WithAdvice(contents.status());
  package->manifest_ = std::move(manifest).value();
  package->graphs_ = std::move(contents->graphs);
  package->evictor_ = std::move(contents->evictor);
  package->embedding_ = std::move(contents->embedding);
  package->prefix_k_ = std::move(contents->prefix_k);
  package->prefix_v_ = std::move(contents->prefix_v);
  package->tokenizer_ = std::move(contents->tokenizer);
  return std::shared_ptr<const Package>(package);
}

Status Package::Verified() const { return verified_.valid() ? verified_.get() : OkStatus(); }

Result<std::shared_ptr<const Graph>> Package::FindGraph(uint32_t shard,
                                                        std::string_view name) const {
  if (shard >= graphs_.size()) {
    return NotFoundError(fmt::format("package '{}' has no shard {}; it has {} (from 0 on)", path_,
                                     shard, graphs_.size()));
  }
  std::string known;
  for (const std::shared_ptr<const Graph>& graph : graphs_[shard]) {
    if (graph->name() == name) return graph;
    known += (known.empty() ? "" : ", ") + graph->name();
  }
  return NotFoundError(fmt::format("shard {} of package '{}' has no graph {}; it has {}", shard,
                                   path_, name, known));
}

std::string Package::PathOf(const std::string& name) const { return JoinPath(path_, name); }

bool Package::HasFile(const std::string& name) const {
  return IsPlainFileName(name) && FileExists(PathOf(name));
}

Result<std::vector<std::vector<std::shared_ptr<const Graph>>>> ReadGraphs(
    const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored, ReadGraphFiles(folder));
  return std::move(stored.graphs);
}

Result<std::shared_ptr<const Graph>> ReadEvictor(const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored, ReadGraphFiles(folder, kEvictorFiles));
  return OnlyEvictor(stored, JoinPath(folder, kEvictorFiles.graphs));
}

}  // namespace spillway
