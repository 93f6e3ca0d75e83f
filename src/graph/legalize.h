// Legalise: rewrites a quantised graph into what the HTP really supports.

#ifndef SPILLWAY_GRAPH_LEGALIZE_H_
#define SPILLWAY_GRAPH_LEGALIZE_H_

#include "graph/graph.h"
#include "spillway/status.h"

namespace spillway {

// What differs between targets.
struct LegalizeTarget {
  // HTP architecture (73, 75, 79, ...). v68 and v69 refuse u16 x u16 products.
  int htp_arch = 79;
  uint32_t max_rank = 5;
};

// Returns the legal form of `graph`:
//  - a Convert whose input and output have the same type and encoding goes away;
//  - a Reshape or Transpose that changes nothing goes away, and chains of
//    Reshapes become one;
//  - operations whose outputs nobody reads go away;
//  - every operation is checked against the measured rules of the HTP compiler
//    (types, ranks, equal encodings where it copies integers). What cannot be
//    expressed is kUnsupported and names the operation, its types and the rule.
// Input and output tensors keep names, order, shapes and encodings.
Result<Graph> Legalize(const Graph& graph, const LegalizeTarget& target);

}  // namespace spillway

#endif  // SPILLWAY_GRAPH_LEGALIZE_H_
