// graphs.fb and weights.bin: writing and reading. Inside the package layer
// only; the format is in graphs.fbs and docs/package-format.md.

#ifndef SPILLWAY_PACKAGE_GRAPH_FILE_H_
#define SPILLWAY_PACKAGE_GRAPH_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "graph/graph.h"
#include "spillway/status.h"

namespace spillway {

inline constexpr char kGraphsFile[] = "graphs.fb";
inline constexpr char kWeightsFile[] = "weights.bin";

// Where graphs and their constants are in a folder.
struct GraphFiles {
  const char* graphs;
  const char* weights;
};
inline constexpr GraphFiles kStepFiles = {kGraphsFile, kWeightsFile};
inline constexpr GraphFiles kEvictorFiles = {"evictor.fb", "evictor_weights.bin"};

inline constexpr uint32_t kGraphFileVersion = 1;
inline constexpr size_t kWeightAlignment = 64;

// [shard][graph]
using ShardGraphs = std::vector<std::vector<std::shared_ptr<const Graph>>>;

struct StoredGraphs {
  ShardGraphs graphs;
  // Every stored constant, those that no graph uses too. Names are unique.
  std::vector<Tensor> constants;
};

// Writes both files into a folder, shard by shard: what is added is on disk when the
// call returns and need not stay in memory. Equal values are stored once; the
// same calls give the same bytes. kInvalidArgument names the shard, graph and
// tensor that cannot be stored. After an error, and without Finish(), there are
// no files. Not thread-safe.
class GraphFileWriter {
 public:
  static Result<std::unique_ptr<GraphFileWriter>> Create(const std::string& folder,
                                                         const GraphFiles& files = kStepFiles);
  virtual ~GraphFileWriter() = default;
  virtual Status AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs) = 0;
  // A constant that no graph uses.
  virtual Status AddExtra(const Tensor& tensor) = 0;
  virtual Status Finish() = 0;
};

// Reads both files. Constants are views into the mapped weights.bin and keep
// the mapping alive; tensors with the same stored values have the same
// ConstantData. Whatever the bytes are, the result is graphs that Validate()
// accepts or kCorruptData (kUnsupported for a newer version) naming the file.
Result<StoredGraphs> ReadGraphFiles(const MappedFile& graphs,
                                    std::shared_ptr<const MappedFile> weights);
Result<StoredGraphs> ReadGraphFiles(const std::string& folder,
                                    const GraphFiles& files = kStepFiles);

// Whether a tensor can be stored: its shape, its encoding and, for a constant,
// that the values are as many bytes as type, shape and layout ask for.
// kInvalidArgument names the tensor.
Status CheckStoredTensor(const Tensor& tensor);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_GRAPH_FILE_H_
