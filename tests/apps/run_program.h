// Runs the built program and keeps what it says.

#ifndef SPILLWAY_TESTS_APPS_RUN_PROGRAM_H_
#define SPILLWAY_TESTS_APPS_RUN_PROGRAM_H_

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace spillway::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
};

inline std::string ShellQuote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

inline std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Discarded when the text is no JSON.
inline nlohmann::json ParseJson(const std::string& text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// `environment` like "NAME=value NAME=value"; `input` is the standard input.
inline ProgramResult RunProgram(const std::vector<std::string>& arguments,
                                const std::string& input = "",
                                const std::string& environment = "") {
  const TempFolder folder;
  std::ofstream(folder.File("in"), std::ios::binary) << input;
  std::string command = "env " + environment + " " + ShellQuote(SPILLWAY_PROGRAM);
  for (const std::string& argument : arguments) command += " " + ShellQuote(argument);
  command += " <" + ShellQuote(folder.File("in")) + " >" + ShellQuote(folder.File("out")) + " 2>" +
             ShellQuote(folder.File("err"));
  const int state = std::system(command.c_str());
  ProgramResult result;
  if (WIFEXITED(state)) result.exit_code = WEXITSTATUS(state);
  result.out = ReadText(folder.File("out"));
  result.err = ReadText(folder.File("err"));
  return result;
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_APPS_RUN_PROGRAM_H_
