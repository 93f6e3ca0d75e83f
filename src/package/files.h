// The files of a package folder: names, sizes and hashes. Inside the package
// layer only.

#ifndef SPILLWAY_PACKAGE_FILES_H_
#define SPILLWAY_PACKAGE_FILES_H_

#include <string>
#include <vector>

#include "package/graph_file.h"
#include "package/package.h"

namespace spillway {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kReportFile[] = "report.json";
inline constexpr char kTokenizerFile[] = "tokenizer.bin";

// The size and, with `hash`, the hash of each name in `files`, by two threads,
// the largest first.
Status MeasureFiles(const std::string& folder, bool hash, std::vector<PackageFile>& files);

// Whether the manifest lists the files that every package has and those that
// its shards name, each once. `path` is the manifest's, for errors.
Status CheckFileList(const PackageManifest& manifest, const std::string& path);

// What a package holds besides its manifest.
struct PackageContents {
  ShardGraphs graphs;
  std::shared_ptr<const Graph> evictor;  // null: none
  Tensor embedding;
  std::vector<Tensor> prefix_k, prefix_v;
  TokenizerData tokenizer;
};

// Reads graphs, weights and tokenizer of `folder` and checks that they are what
// `manifest` says. kCorruptData names the file that is wrong.
Result<PackageContents> ReadContents(const std::string& folder, const PackageManifest& manifest);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_FILES_H_
