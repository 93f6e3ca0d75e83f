#include "host/softmax_weights.h"

#include <map>
#include <mutex>

#include "host/quant_math.h"

namespace spillway::host {

std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale) {
  struct Known {
    std::mutex mutex;
    std::map<float, std::weak_ptr<const std::vector<uint16_t>>> tables;
  };
  static Known* const known = new Known;  // never destroyed: kernels may outlive statics
  const std::lock_guard<std::mutex> lock(known->mutex);
  if (auto table = known->tables[scale].lock(); table != nullptr) return table;
  auto table = std::make_shared<std::vector<uint16_t>>();
  for (int64_t below = 0; below <= 65535; ++below) {
    table->push_back(static_cast<uint16_t>(SoftmaxWeight(scale, below, true)));
    if (table->back() == 0) break;
  }
  std::erase_if(known->tables, [](const auto& entry) { return entry.second.expired(); });
  known->tables[scale] = table;
  return table;
}

}  // namespace spillway::host
