#include "tests/fake_qnn/recorder.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace fake_qnn {
namespace {

std::mutex mutex;
std::string record;
std::string returned;
std::map<std::string, unsigned> calls;

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Whether `variable` asks for something at call number `count` of `call`; the
// number of the call is at `place` of the value's parts.
bool Asked(const char* variable, const std::string& call, unsigned count, size_t place,
           std::vector<std::string>* parts) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return false;
  *parts = Split(value);
  if ((*parts)[0] != call) return false;
  return parts->size() <= place || std::strtoul((*parts)[place].c_str(), nullptr, 10) == count;
}

}  // namespace

void RecordLine(const std::string& line) {
  const std::lock_guard lock(mutex);
  record += line + "\n";
  const char* path = std::getenv("FAKE_QNN_RECORD");
  if (path == nullptr) return;
  if (std::FILE* file = std::fopen(path, "ae")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

abi::Error Enter(const char* call) {
  RecordLine(std::string("call ") + call);
  unsigned count;
  {
    const std::lock_guard lock(mutex);
    count = ++calls[call];
  }
  std::vector<std::string> parts;
  if (Asked("FAKE_QNN_CRASH", call, count, 1, &parts)) {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
  }
  if (Asked("FAKE_QNN_HANG", call, count, 1, &parts)) {
    for (;;) pause();
  }
  if (Asked("FAKE_QNN_FAIL", call, count, 2, &parts) && parts.size() > 1) {
    return std::strtoull(parts[1].c_str(), nullptr, 10);
  }
  return 0;
}

void RecordConfig(const char* call, unsigned option, const void* bytes, size_t size) {
  std::string line = std::string("config ") + call + " option " + std::to_string(option);
  for (size_t i = 0; i < size; ++i) {
    char text[4];
    std::snprintf(text, sizeof(text), " %02x", static_cast<const unsigned char*>(bytes)[i]);
    line += text;
  }
  RecordLine(line);
}

const char* RecordText() {
  const std::lock_guard lock(mutex);
  returned = record;
  return returned.c_str();
}

void ResetRecord() {
  const std::lock_guard lock(mutex);
  record.clear();
  calls.clear();
}

unsigned EnvNumber(const char* name, unsigned fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

}  // namespace fake_qnn
