// How fast the HTP runs: votes for clocks and sleep, through the vendor's
// performance interface. Meant for devices; the x86-64 library takes the calls
// and does nothing.

#ifndef SPILLWAY_QNN_HTP_POWER_H_
#define SPILLWAY_QNN_HTP_POWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "qnn/api/manager.h"
#include "qnn/htp/abi_htp.h"
#include "qnn/htp/options.h"
#include "spillway/status.h"

namespace spillway::qnn::htp {

// One vote, withdrawn when the object goes. Needs a live Device. Not thread-safe.
class PowerVote {
 public:
  static Result<std::unique_ptr<PowerVote>> Create(std::shared_ptr<Device> device);
  ~PowerVote();
  PowerVote(const PowerVote&) = delete;
  PowerVote& operator=(const PowerVote&) = delete;

  // Replaces what the vote said. kDefault and options that are not set send
  // nothing; with nothing to send the vendor is not called.
  Status Set(PerformanceMode mode, std::optional<uint32_t> rpc_polling_us,
             std::optional<uint32_t> rpc_control_latency_us);

 private:
  explicit PowerVote(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::shared_ptr<Device> device_;
  const abi::HtpPerfFunctions* perf_ = nullptr;
  bool created_ = false;
  uint32_t id_ = 0;
};

// The settings that Set() sends for a vote of number `id`, in order.
std::vector<abi::HtpPowerConfig> PowerConfigs(uint32_t id, PerformanceMode mode,
                                              std::optional<uint32_t> rpc_polling_us,
                                              std::optional<uint32_t> rpc_control_latency_us);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_POWER_H_
