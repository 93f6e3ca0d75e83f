#include "qnn/api/log_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace spillway::qnn {
namespace {

struct StageWeight {
  std::string_view name;
  double weight;  // its usual share of the time
};
constexpr StageWeight kStages[] = {
    {"Graph Preparation Initializing", 0.01},
    {"Graph Optimizations", 0.25},
    {"Post Graph Optimization", 0.02},
    {"Graph Sequencing for Target", 0.40},
    {"VTCM Allocation", 0.05},
    {"Parallelization Optimization", 0.17},
    {"Finalizing Graph Sequence", 0.09},
    {"Completion", 0.01},
};

// The text behind `before`, when the line has it.
std::optional<std::string_view> After(std::string_view line, std::string_view before) {
  const size_t place = line.find(before);
  if (place == std::string_view::npos) return std::nullopt;
  return line.substr(place + before.size());
}

std::string_view UpTo(std::string_view text, std::string_view stop) {
  return text.substr(0, text.find(stop));
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '.')) {
    text.remove_suffix(1);
  }
  return text;
}

// The number at the start of `text`.
template <typename T>
std::optional<T> Number(std::string_view text) {
  text = Trim(text);
  T value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int> GraphLogFacts::slc_allocate() const {
  const auto found = options.find("slc_allocate");
  return found == options.end() ? std::nullopt : Number<int>(found->second);
}

const GraphLogFacts* LogFacts::FindGraph(std::string_view name) const {
  for (auto graph = graphs.rbegin(); graph != graphs.rend(); ++graph) {
    if (graph->name == name) return &*graph;
  }
  return nullptr;
}

std::string_view LogReader::StripTag(std::string_view line) {
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (line.size() > 4 && line[0] == '<' && line[2] == '>' && line[3] == ' ') line.remove_prefix(4);
  return line;
}

bool LogReader::IsHarmless(std::string_view line) {
  return line.find("unexpected GraphHtpSettings option") != std::string_view::npos;
}

GraphLogFacts& LogReader::Graph(std::string_view name) {
  for (auto graph = facts_.graphs.rbegin(); graph != facts_.graphs.rend(); ++graph) {
    if (graph->name == name) return *graph;
  }
  GraphLogFacts& graph = facts_.graphs.emplace_back();
  graph.name = name;
  return graph;
}

GraphLogFacts& LogReader::CurrentGraph() { return Graph(current_); }

void LogReader::BeginPrepare(std::string_view graph) {
  current_ = graph;
  GraphLogFacts& facts = CurrentGraph();
  facts.stages.clear();
  facts.ddr.reset();
  facts.slc_had_nothing_to_do = false;
  stage_.clear();
  finished_stages_ = bar_ = percent_ = 0;
  fraction_ = 0;
}

// `part` of the stage in progress is done.
void LogReader::SetFraction(double part) {
  double done = 0;
  for (int i = 0; i < finished_stages_ && i < static_cast<int>(std::size(kStages)); ++i) {
    done += kStages[i].weight;
  }
  for (const StageWeight& stage : kStages) {
    if (stage.name == stage_) done += stage.weight * part;
  }
  fraction_ = std::clamp(done, fraction_, 1.0);
}

bool LogReader::AddProgressLine(std::string_view line) {
  if (const auto name = After(line, "Starting stage: ")) {
    stage_ = Trim(*name);
    bar_ = percent_ = 0;
    return true;
  }
  if (const auto completed = After(line, "Completed stage: ")) {
    PrepareStage stage;
    stage.name = Trim(UpTo(*completed, " ("));
    if (const auto time = After(*completed, " (")) {
      stage.microseconds = Number<uint64_t>(*time).value_or(0);
    }
    CurrentGraph().stages.push_back(stage);
    stage_ = stage.name;
    SetFraction(1);
    ++finished_stages_;
    stage_ = stage.name;
    return true;
  }
  // A bar like "[#####     ]  10%". A stage may draw several, each taken as half
  // of what is left.
  if (line.empty() || line.front() != '[' || line.back() != '%') return false;
  const auto number = After(line, "]");
  if (!number) return false;
  const std::optional<int> percent = Number<int>(*number);
  if (!percent || *percent < 0 || *percent > 100) return false;
  if (*percent < percent_) ++bar_;
  percent_ = *percent;
  const double left = std::pow(0.5, std::min(bar_, 30));
  SetFraction(1 - left + left * 0.5 * percent_ / 100);
  return true;
}

bool LogReader::AddDdrLine(std::string_view line) {
  if (line.find("DDR bandwidth summary") != std::string_view::npos) {
    CurrentGraph().ddr.emplace();
    return true;
  }
  struct Field {
    std::string_view name;
    uint64_t DdrBandwidth::*value;
  };
  constexpr Field kFields[] = {{"spill_bytes=", &DdrBandwidth::spill_bytes},
                               {"fill_bytes=", &DdrBandwidth::fill_bytes},
                               {"write_total_bytes=", &DdrBandwidth::write_total_bytes},
                               {"read_total_bytes=", &DdrBandwidth::read_total_bytes}};
  for (const Field& field : kFields) {
    if (!line.starts_with(field.name)) continue;
    // Lines of the callback may come between those that older releases print.
    std::optional<DdrBandwidth>& ddr = CurrentGraph().ddr;
    if (!ddr) return false;
    (*ddr).*field.value = Number<uint64_t>(line.substr(field.name.size())).value_or(0);
    return true;
  }
  return false;
}

bool LogReader::AddOptionLine(std::string_view line) {
  if (const auto name = After(line, "QnnGraph_create started for graph ")) {
    current_ = *name;
    Graph(current_) = GraphLogFacts{.name = current_,
                                    .options = {},
                                    .optimizations = {},
                                    .stages = {},
                                    .ddr = {},
                                    .slc_had_nothing_to_do = false};
    return true;
  }
  if (const auto option = After(line, "Set option ")) {
    const auto type = Number<uint32_t>(*option);
    const auto value = After(*option, " : ");
    if (type && value) CurrentGraph().optimizations[*type] = Number<double>(*value).value_or(0);
    return true;
  }
  if (const auto option = After(line, "with init graph option: ")) {
    const auto value = After(*option, " = ");
    if (!value) return true;
    const std::string key(UpTo(*option, " = "));
    if (const auto graph = After(line, "Prepare: Graph ")) {
      Graph(UpTo(*graph, " with init graph option: ")).options[key] = Trim(*value);
    } else if (key == "slc_allocate" && !facts_.loaded.empty()) {
      facts_.loaded.back().slc_allocate = Number<int>(*value);
    }
    return true;
  }
  if (const auto slc = After(line, "SLC_ALLOCATOR is set to ")) {
    LoadedGraphLogFacts loaded;
    loaded.slc_allocate = Number<int>(*slc);
    if (const auto index = After(*slc, " for graph ")) {
      loaded.index = Number<uint32_t>(*index).value_or(0);
    }
    facts_.loaded.push_back(loaded);
    return true;
  }
  return false;
}

void LogReader::AddDeviceLine(std::string_view line) {
  if (const auto soc = After(line, "Client set SoC ")) {
    facts_.soc_id = Number<uint32_t>(*soc);
  } else if (const auto name = After(line, "SoC model name is ")) {
    facts_.soc_name = Trim(*name);
  } else if (const auto found = After(line, "Detected Snapdragon SOC ")) {
    facts_.default_soc = Trim(UpTo(*found, " with"));
  } else if (line.find("SocModel supports FP16") != std::string_view::npos) {
    facts_.fp16 = true;
  } else if (const auto without = After(line, "Performance Estimates unsupported on soc ")) {
    facts_.soc_without_estimates = Trim(*without);
  } else if (line.find("no allocation performed") != std::string_view::npos) {
    CurrentGraph().slc_had_nothing_to_do = true;
  }
}

void LogReader::AddLine(std::string_view line) {
  line = StripTag(line);
  if (AddProgressLine(line) || AddDdrLine(line) || AddOptionLine(line)) return;
  AddDeviceLine(line);
}

}  // namespace spillway::qnn
