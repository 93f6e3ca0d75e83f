// What 'spillway bench' found, for scripts and for people.

#ifndef SPILLWAY_APPS_SPILLWAY_BENCH_REPORT_H_
#define SPILLWAY_APPS_SPILLWAY_BENCH_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "eval/speed.h"
#include "json_text.h"

namespace spillway::cli {

// New processes that answer a short prompt, its files in the page cache. Seconds.
struct StartFigures {
  size_t threads = 0;
  Spread load, first_token, both;  // until the package is ready; from there; together
  uint64_t peak_rss_bytes = 0;     // the highest of them
};

struct BenchReport {
  std::string package, recipe;
  uint32_t context_len = 0, prefill_ar = 0, repetitions = 0;
  std::vector<StartFigures> starts;
  SpeedReport speed;
};

Json BenchJson(const BenchReport& report);
std::string BenchText(const BenchReport& report);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_BENCH_REPORT_H_
