#include "host/softmax_weights.h"

#include <utility>

#include "host/shared_values.h"

namespace spillway::host {

std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale) {
  using Table = std::vector<uint16_t>;
  static auto* const known = new SharedValues<float, Table>;
  return known->Get(scale, [&] {
    Table weights = SoftmaxWeights<uint16_t>(scale, 65535, true);
    weights.push_back(0);
    return std::make_shared<const Table>(std::move(weights));
  });
}

}  // namespace spillway::host
