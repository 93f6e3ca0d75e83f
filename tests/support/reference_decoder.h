// A decoder-only transformer written down as plainly as possible: loops over
// doubles, token by token, no graph, weights in the order of the file.

#ifndef SPILLWAY_TESTS_SUPPORT_REFERENCE_DECODER_H_
#define SPILLWAY_TESTS_SUPPORT_REFERENCE_DECODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/tiny_model.h"

namespace spillway::test {

// Logits [vocab] after each of `tokens`, which are positions 0, 1, 2, ... Knows
// what TinyModelSpec can say, but not "yarn" scaling (aborts).
std::vector<std::vector<double>> ReferenceLogits(const TinyModel& model,
                                                 std::span<const uint32_t> tokens);

// An attention sink: before a token runs with `limit` tokens there, the `batch` tokens
// after the first `sink` are forgotten, and the positions of the rest are what is left.
struct ReferenceSink {
  uint32_t limit = 0, sink = 0, batch = 0;
};
std::vector<std::vector<double>> ReferenceLogits(const TinyModel& model,
                                                 std::span<const uint32_t> tokens,
                                                 const ReferenceSink& sink);

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_REFERENCE_DECODER_H_
