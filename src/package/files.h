// The files of a package folder: names, sizes and hashes. Inside the package
// layer only.

#ifndef SPILLWAY_PACKAGE_FILES_H_
#define SPILLWAY_PACKAGE_FILES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "package/graph_file.h"
#include "package/package.h"

namespace spillway {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kReportFile[] = "report.json";
inline constexpr char kTokenizerFile[] = "tokenizer.bin";

// The names of those that ReadContents() reads.
std::vector<std::string> FilesToRead(const PackageManifest& manifest);
// They, mapped once: hashing them brings the pages into memory that are then read.
using MappedFiles = std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>>;
Result<MappedFiles> MapFiles(const std::string& folder, const PackageManifest& manifest);

// Fills in size and hash of `files`, by two threads, the largest first. Those that are not
// among `mapped` are read and leave memory again.
Status MeasureFiles(const std::string& folder, const MappedFiles& mapped,
                    std::vector<PackageFile>& files);

// Whether the manifest lists the files that every package has and those that
// its shards name, each once. `path` is the manifest's, for errors.
Status CheckFileList(const PackageManifest& manifest, const std::string& path);

// The evictor's graph, which must be the only one in the file at `path`.
Result<std::shared_ptr<const Graph>> OnlyEvictor(const StoredGraphs& stored,
                                                 const std::string& path);

// What a package holds besides its manifest.
struct PackageContents {
  ShardGraphs graphs;
  std::shared_ptr<const Graph> evictor;  // null: none
  Tensor embedding;
  std::vector<Tensor> prefix_k, prefix_v;
  std::shared_ptr<const TokenizerData> tokenizer;
};

// Reads graphs, weights and tokenizer from `files` of `folder` and checks that they are what
// `manifest`, which lists them (CheckFileList), says. kCorruptData names the file that is wrong.
Result<PackageContents> ReadContents(const std::string& folder, const PackageManifest& manifest,
                                     const MappedFiles& files);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_FILES_H_
