// What both fake libraries share: the record of calls, and failing on demand.

#ifndef SPILLWAY_TESTS_FAKE_QNN_RECORDER_H_
#define SPILLWAY_TESTS_FAKE_QNN_RECORDER_H_

#include <cstddef>
#include <string>

#include "qnn/api/abi.h"

namespace fake_qnn {

namespace abi = spillway::qnn::abi;

// Every call begins with it: records, crashes, hangs, or returns the number that
// the call must return (0: go on).
abi::Error Enter(const char* call);
void RecordLine(const std::string& line);
// "config <call> option <option> <bytes in hex>".
void RecordConfig(const char* call, unsigned option, const void* bytes, size_t size);
const char* RecordText();
void ResetRecord();
// The variable as a number, or `fallback`.
unsigned EnvNumber(const char* name, unsigned fallback);

}  // namespace fake_qnn

#endif  // SPILLWAY_TESTS_FAKE_QNN_RECORDER_H_
