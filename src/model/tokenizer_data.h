// What the files of the tokenizer share about TokenizerData.

#ifndef SPILLWAY_MODEL_TOKENIZER_DATA_H_
#define SPILLWAY_MODEL_TOKENIZER_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

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

// The merges that GGUF spells "left right". Fails (kCorruptData) with the merge's number
// when it is not two tokens or the tokens or what they make are not in the vocabulary.
Result<std::vector<TokenMerge>> ParseMerges(const std::vector<std::string>& merges,
                                            const std::vector<std::string>& tokens);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_TOKENIZER_DATA_H_
