// PackageWriter.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "package/files.h"
#include "package/json_fields.h"

namespace spillway {
namespace {

// The files to list in the manifest, sorted by name. What a process that
// crashed in the middle of AtomicFile left behind is removed.
Result<std::vector<PackageFile>> CollectFiles(const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::vector<PackageFile> files;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (IsDirectory(path)) {
      return InvalidArgumentError("'" + path + "' is a folder; a package holds files only");
    }
    if (name.front() == '.') {
      if (std::remove(path.c_str()) != 0) return IoError("cannot remove '" + path + "'");
      continue;
    }
    if (name == kManifestFile || name == kReportFile) continue;
    PackageFile file;
    file.name = name;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<PackageWriter> PackageWriter::Create(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFolder folder, AtomicFolder::Create(path));
  SPILLWAY_ASSIGN_OR_RETURN(auto graphs, GraphFileWriter::Create(folder.staging_path()));
  return PackageWriter(std::move(folder), std::move(graphs));
}

Result<PackageWriter> PackageWriter::Extend(const std::string& path,
                                            const PackageManifest& manifest) {
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFolder folder, AtomicFolder::Create(path));
  std::vector<std::string> names;
  for (const PackageFile& file : manifest.files) {
    const bool evictor = manifest.evictor.has_value() &&
                         (file.name == kEvictorFiles.graphs || file.name == kEvictorFiles.weights ||
                          file.name == manifest.evictor->context_file);
    if (!evictor) names.push_back(file.name);
  }
  if (FileExists(JoinPath(path, kReportFile))) names.emplace_back(kReportFile);
  for (const std::string& name : names) {
    SPILLWAY_RETURN_IF_ERROR(
        LinkOrCopyFile(JoinPath(path, name), JoinPath(folder.staging_path(), name)));
  }
  return PackageWriter(std::move(folder), nullptr);
}

PackageWriter::PackageWriter(AtomicFolder folder, std::unique_ptr<GraphFileWriter> graphs)
    : folder_(std::move(folder)), graphs_(std::move(graphs)) {}
PackageWriter::PackageWriter(PackageWriter&& other) noexcept = default;
PackageWriter::~PackageWriter() = default;

Status PackageWriter::AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs) {
  if (graphs_ == nullptr) return FailedPreconditionError("the package's graphs are finished");
  return graphs_->AddShard(graphs);
}

Status PackageWriter::FinishGraphs(const std::vector<Tensor>& extra) {
  if (graphs_ == nullptr) return FailedPreconditionError("the package's graphs are finished");
  for (const Tensor& tensor : extra) SPILLWAY_RETURN_IF_ERROR(graphs_->AddExtra(tensor));
  SPILLWAY_RETURN_IF_ERROR(graphs_->Finish());
  graphs_ = nullptr;
  return OkStatus();
}

Status PackageWriter::AddEvictor(const std::shared_ptr<const Graph>& graph) {
  if (graphs_ != nullptr) return FailedPreconditionError("the package's graphs are not finished");
  SPILLWAY_ASSIGN_OR_RETURN(auto writer,
                            GraphFileWriter::Create(folder_.staging_path(), kEvictorFiles));
  SPILLWAY_RETURN_IF_ERROR(writer->AddShard({graph}));
  return writer->Finish();
}

Status PackageWriter::AddTokenizer(const TokenizerData& data) {
  return AddFile(kTokenizerFile, data.Serialize());
}

Status PackageWriter::AddFile(const std::string& name, std::string_view contents) {
  if (!IsPlainFileName(name) || name.front() == '.' || name == kManifestFile) {
    return InvalidArgumentError(
        fmt::format("'{}' cannot be a file of a package; expected a plain name, not beginning with "
                    "a dot and not {}",
                    name, kManifestFile));
  }
  return WriteFileAtomically(PathOf(name), contents);
}

std::string PackageWriter::PathOf(const std::string& name) const {
  return JoinPath(folder_.staging_path(), name);
}

Status PackageWriter::Commit(PackageManifest manifest) {
  const std::string& folder = folder_.staging_path();
  if (folder.empty()) return FailedPreconditionError("the package is already committed");
  for (const char* name : {kGraphsFile, kWeightsFile, kTokenizerFile}) {
    if (FileExists(PathOf(name))) continue;
    return FailedPreconditionError(
        fmt::format("the package has no {} yet; add graphs and tokenizer before the commit", name));
  }
  SPILLWAY_ASSIGN_OR_RETURN(manifest.files, CollectFiles(folder));
  SPILLWAY_RETURN_IF_ERROR(CheckFileList(manifest, PathOf(kManifestFile)));
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFiles mapped, MapFiles(folder, manifest));
  SPILLWAY_RETURN_IF_ERROR(MeasureFiles(folder, mapped, manifest.files));
  // What is put in place can be opened: read it back before.
  const std::string json = manifest.ToJson();
  SPILLWAY_ASSIGN_OR_RETURN(const PackageManifest stored,
                            PackageManifest::FromJson(json, PathOf(kManifestFile)));
  const Result<PackageContents> contents = ReadContents(folder, stored, mapped);
  if (!contents.ok()) return contents.status();
  SPILLWAY_RETURN_IF_ERROR(WriteFileAtomically(PathOf(kManifestFile), json));
  return folder_.Commit();
}

}  // namespace spillway
