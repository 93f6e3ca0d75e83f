// Facts out of the vendor's log lines: preparation stages and progress, DDR
// traffic, and proof of which options reached the compiler.
//
// The lines are those of releases 2.47 to 2.51; a line that is not understood is
// skipped. Releases before 2.50 print stages and DDR traffic to standard output;
// Graph::Finalize captures that and it comes here like the rest.

#ifndef SPILLWAY_QNN_API_LOG_READER_H_
#define SPILLWAY_QNN_API_LOG_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qnn/api/abi.h"

namespace spillway::qnn {

// One execution's DDR traffic as the compiler counts it.
struct DdrBandwidth {
  uint64_t spill_bytes = 0;        // values that VTCM has no room for, written
  uint64_t fill_bytes = 0;         // and read back
  uint64_t write_total_bytes = 0;  // spills and graph outputs
  uint64_t read_total_bytes = 0;   // fills, weights and graph inputs
};

struct PrepareStage {
  std::string name;
  uint64_t microseconds = 0;
};

// What the log says about one graph that was built and prepared.
struct GraphLogFacts {
  std::string name;
  // Options as the preparation received them: "slc_allocate" -> "1",
  // "vtcm_size" -> "8388608", "soc_type" -> "SM8750", ...
  std::map<std::string, std::string> options;
  // Graph optimisations (abi::HtpOptimization) as they arrived: 3 -> 3.0, 7 -> 1.0.
  std::map<uint32_t, double> optimizations;
  std::vector<PrepareStage> stages;
  std::optional<DdrBandwidth> ddr;
  // The SLC allocator ran and had nothing to do: no value moves between VTCM and DDR.
  bool slc_had_nothing_to_do = false;

  // "slc_allocate" as 0 or 1; nothing when the log did not say.
  std::optional<int> slc_allocate() const;
};

// A graph of a context binary that was loaded.
struct LoadedGraphLogFacts {
  uint32_t index = 0;  // in the binary
  std::optional<int> slc_allocate;
};

struct LogFacts {
  std::string default_soc;            // what the library assumes by itself
  std::optional<uint32_t> soc_id;     // what the device option set
  std::string soc_name;               // what graphs are prepared for
  bool fp16 = false;                  // the SoC is said to support it
  std::string soc_without_estimates;  // named when it has no cost estimates
  std::vector<GraphLogFacts> graphs;  // in the order of their creation
  std::vector<LoadedGraphLogFacts> loaded;

  // Null when the log knows no graph of that name. The latest one wins.
  const GraphLogFacts* FindGraph(std::string_view name) const;
};

// Not thread-safe.
class LogReader {
 public:
  // `line` has no line end.
  void AddLine(std::string_view line);
  // The lines from here on belong to the preparation of `graph`.
  void BeginPrepare(std::string_view graph);

  const LogFacts& facts() const { return facts_; }
  // Of the preparation in progress, 0..1, never falling; 0 before its first line.
  double prepare_fraction() const { return fraction_; }
  // The vendor's name for the stage in progress.
  const std::string& stage() const { return stage_; }

  // The line without the vendor's level tag (" <E> ").
  static std::string_view StripTag(std::string_view line);
  // An error line that always comes and means nothing.
  static bool IsHarmless(std::string_view line);

 private:
  GraphLogFacts& Graph(std::string_view name);
  GraphLogFacts& CurrentGraph();
  bool AddProgressLine(std::string_view line);
  bool AddDdrLine(std::string_view line);
  bool AddOptionLine(std::string_view line);
  void AddDeviceLine(std::string_view line);
  void SetFraction(double part);

  LogFacts facts_;
  std::string current_;  // the graph being built or prepared
  std::string stage_;
  int finished_stages_ = 0;
  int bar_ = 0;      // progress bars finished in this stage
  int percent_ = 0;  // of the bar in progress
  double fraction_ = 0;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_LOG_READER_H_
