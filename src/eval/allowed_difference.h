// How far the vendor's integer arithmetic may be from ours, operation by
// operation. Measured on single operations against exact arithmetic rounded
// once; docs/operations.md has the table for people.

#ifndef SPILLWAY_EVAL_ALLOWED_DIFFERENCE_H_
#define SPILLWAY_EVAL_ALLOWED_DIFFERENCE_H_

#include "graph/graph.h"

namespace spillway {

// Units of the last place of the operation's output; of an f16 output, 2^-10 of its
// largest magnitude. `htp_arch`: 68 and 69 have
// coarser products of 16-bit activations.
double AllowedLsb(const Graph& graph, const Op& op, int htp_arch);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_ALLOWED_DIFFERENCE_H_
