// What the files of the tokenizer share about TokenizerData.

#ifndef SPILLWAY_MODEL_TOKENIZER_DATA_H_
#define SPILLWAY_MODEL_TOKENIZER_DATA_H_

#include <cstdint>

#include "model/tokenizer.h"
#include "spillway/status.h"

namespace spillway {

// The numbers are those of tokenizer.ggml.token_type.
enum class GgufTokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Whether the parts fit together: the model kind (else kUnsupported), counts,
// types, UTF-8 and ids (else kCorruptData, naming the field).
Status CheckTokenizerData(const TokenizerData& data);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_TOKENIZER_DATA_H_
