// What is said about an answer: for scripts and for people.

#ifndef SPILLWAY_APPS_SPILLWAY_ANSWER_REPORT_H_
#define SPILLWAY_APPS_SPILLWAY_ANSWER_REPORT_H_

#include <string>
#include <vector>

#include "json_text.h"
#include "spillway/session.h"

namespace spillway::cli {

// Tokens, text, why it stopped, and the statistics.
Json AnswerJson(const Answer& answer);
// Of a whole run, for --stats-json: {"answers": [...]}, each the statistics with
// "prompt_tokens", "answer_tokens" (counts) and "stop_reason".
std::string StatsFileText(const std::vector<Answer>& answers);
// A few lines.
std::string StatsText(const Answer& answer);
// One short line.
std::string ShortStats(const Answer& answer);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_ANSWER_REPORT_H_
