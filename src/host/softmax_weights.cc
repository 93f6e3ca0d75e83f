#include "host/softmax_weights.h"

#include "host/shared_values.h"

namespace spillway::host {

std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale) {
  using Table = std::vector<uint16_t>;
  static auto* const known = new SharedValues<float, Table>;
  return known->Get(scale, [&] {
    return std::make_shared<const Table>(SoftmaxWeights<uint16_t>(scale, 65535, true));
  });
}

}  // namespace spillway::host
