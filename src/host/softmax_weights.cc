#include "host/softmax_weights.h"

#include <map>
#include <mutex>

namespace spillway::host {

std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale) {
  struct Known {
    std::mutex mutex;
    std::map<float, std::weak_ptr<const std::vector<uint16_t>>> tables;
  };
  static Known* const known = new Known;  // never destroyed: kernels may outlive statics
  const std::lock_guard<std::mutex> lock(known->mutex);
  if (auto table = known->tables[scale].lock(); table != nullptr) return table;
  const auto table =
      std::make_shared<const std::vector<uint16_t>>(SoftmaxWeights<uint16_t>(scale, 65535, true));
  std::erase_if(known->tables, [](const auto& entry) { return entry.second.expired(); });
  known->tables[scale] = table;
  return table;
}

}  // namespace spillway::host
