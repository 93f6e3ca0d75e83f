// A hash of what graphs compute.

#ifndef SPILLWAY_COMPILER_GRAPH_HASH_H_
#define SPILLWAY_COMPILER_GRAPH_HASH_H_

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spillway {

// Of names, operations, attributes, tensors with types, shapes and encodings, and the
// values of constants (each once), which must be in memory. 32 hexadecimal digits.
std::string HashGraphs(const std::vector<std::shared_ptr<const Graph>>& graphs);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_GRAPH_HASH_H_
