// How fast the HTP runs: votes for clocks and sleep, through the vendor's
// performance interface. Meant for devices; the x86-64 library takes the calls
// and does nothing.

#ifndef SPILLWAY_QNN_HTP_POWER_H_
#define SPILLWAY_QNN_HTP_POWER_H_

#include <cstdint>
#include <memory>
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

  // Replaces what the vote said with the performance mode and latencies of `options`.
  // With nothing to send (see PowerConfigs) the vendor is not called.
  Status Set(const HtpOptions& options);

 private:
  explicit PowerVote(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::shared_ptr<Device> device_;
  const abi::HtpPerfFunctions* perf_ = nullptr;
  bool created_ = false;
  uint32_t id_ = 0;
};

// The settings that Set() sends for a vote of number `id`, in order: clocks and sleep
// (DCVS v3), the latency of calls to the DSP, and how long the caller polls for the
// answer before it sleeps.
//
// Mode                          clocks            sleep    polling  call latency
// burst                         maximum, fixed    40 us    9999 us  100 us
// sustained_high, high          turbo, fixed      100 us   9999 us  100 us
// balanced, low_balanced,       nominal+ down to  1000 us  none     not sent
// high .. extreme_power_saver   off, DCVS
// default                       nothing is sent
//
// rpc_polling_us, rpc_control_latency_us and sleep_latency_us win over the mode, and go
// alone in mode default.
std::vector<abi::HtpPowerConfig> PowerConfigs(uint32_t id, const HtpOptions& options);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_POWER_H_
