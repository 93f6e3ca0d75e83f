// The vendor's profile: what its compiler expects of a graph, and what an
// execution took.

#ifndef SPILLWAY_QNN_API_PROFILE_READER_H_
#define SPILLWAY_QNN_API_PROFILE_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qnn/api/abi.h"
#include "qnn/api/library.h"
#include "qnn/api/vendor_log.h"
#include "spillway/status.h"

namespace spillway::qnn {

struct ProfileEvent {
  uint32_t type = 0;  // the vendor's event number
  uint32_t unit = 0;  // abi::ProfileUnit
  uint64_t value = 0;
  std::string identifier;
  std::vector<ProfileEvent> children;
};

// A cost estimate and the vendor's own bounds on it.
struct Estimate {
  uint64_t value = 0, lower = 0, upper = 0;
};

// What the vendor's compiler expects one execution of a graph to cost. Only
// some SoCs have it (see qnn/htp/soc_table.h), at profile level kProfileDetailed.
struct GraphEstimates {
  Estimate cycles;
  Estimate microseconds;
  // DDR traffic in bytes.
  uint64_t input_fill_bytes = 0;          // graph inputs and weights into VTCM
  uint64_t intermediate_fill_bytes = 0;   // spilled values back into VTCM
  uint64_t intermediate_spill_bytes = 0;  // values that VTCM has no room for
  uint64_t inter_htp_fill_bytes = 0;
  uint64_t inter_htp_spill_bytes = 0;
  uint64_t output_spill_bytes = 0;  // graph outputs out of VTCM
  uint64_t missing_cost_ops = 0;    // operations that the estimate leaves out
};

// What an execution or a load took; unset where the level or platform does not say.
struct ExecuteTimes {
  std::optional<uint64_t> total_us;  // from the caller's side
  std::optional<uint64_t> accelerator_us;
  std::optional<uint64_t> accelerator_cycles;
  std::optional<uint64_t> hvx_threads;
  // "name:OpId_n (cycles)" with its cycles, at level kProfileDetailed.
  std::vector<ProfileEvent> nodes;
};

// The first event of `type` anywhere in the trees, depth first; null when none.
const ProfileEvent* FindEvent(const std::vector<ProfileEvent>& events, uint32_t type);
// Nothing when the events carry no estimate.
std::optional<GraphEstimates> ReadEstimates(const std::vector<ProfileEvent>& events);
ExecuteTimes ReadExecuteTimes(const std::vector<ProfileEvent>& events);

// A profile handle. Level 0 makes an empty one, whose handle() is null: the
// vendor then records nothing. Not thread-safe.
class Profile {
 public:
  static Result<Profile> Create(std::shared_ptr<VendorLog> log, abi::Handle backend,
                                uint32_t level);
  Profile(Profile&& other) noexcept;
  Profile& operator=(Profile&& other) = delete;
  ~Profile();

  abi::Handle handle() const { return handle_; }
  // All events with their children. At most 1,000,000 events are read, 16 deep.
  Result<std::vector<ProfileEvent>> ReadEvents() const;

 private:
  Profile() = default;
  std::shared_ptr<VendorLog> log_;
  abi::Handle handle_ = nullptr;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_PROFILE_READER_H_
