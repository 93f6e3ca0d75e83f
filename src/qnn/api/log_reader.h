// Facts out of the vendor's log lines.
#ifndef SPILLWAY_QNN_API_LOG_READER_H_
#define SPILLWAY_QNN_API_LOG_READER_H_
#include <string>
#include <string_view>
#include <vector>

#include "qnn/api/abi.h"
namespace spillway::qnn {
struct LogFacts {
  std::vector<std::string> lines;
};
class LogReader {
 public:
  void AddLine(abi::LogLevel, std::string_view line) { facts_.lines.emplace_back(line); }
  const LogFacts& facts() const { return facts_; }
  double prepare_fraction() const { return 0; }
  const std::string& stage() const { return s_; }
  static bool IsHarmless(std::string_view) { return false; }

 private:
  LogFacts facts_;
  std::string s_;
};
}  // namespace spillway::qnn
#endif
