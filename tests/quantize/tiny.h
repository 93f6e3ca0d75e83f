// A tiny random model and what its quantisation needs.

#ifndef SPILLWAY_TESTS_QUANTIZE_TINY_H_
#define SPILLWAY_TESTS_QUANTIZE_TINY_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "decoder/decoder.h"
#include "model/model.h"
#include "quantize/calibrate.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {

class TinyDecoder {
 public:
  explicit TinyDecoder(const TinyModelSpec& spec) : TinyDecoder(MakeTinyModel(spec)) {}
  explicit TinyDecoder(const TinyModel& tiny) {
    const std::string path = folder_.File("tiny.gguf");
    tiny.file.Write(path);
    Result<std::shared_ptr<const Model>> opened = Model::Open(path);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    model = std::move(opened).value();
    decoder = std::make_unique<Decoder>(model);
  }

  std::shared_ptr<const Graph> Build(const std::string& name, uint32_t ar, uint32_t context,
                                     IoProfile io = IoProfile::kSpillway) {
    DecoderOptions options;
    options.name = name;
    options.ar_len = ar;
    options.context_len = context;
    options.io = io;
    Result<Graph> graph = decoder->Build(options);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    return std::make_shared<Graph>(std::move(graph).value());
  }

  // Windows of random tokens.
  TokenWindows Windows(const std::vector<size_t>& lengths, uint64_t seed = 21) const {
    TokenWindows windows;
    for (const size_t length : lengths) {
      windows.push_back(RandomTokens(length, model->config().vocab_size, seed++));
    }
    return windows;
  }

  std::shared_ptr<const Model> model;
  std::unique_ptr<Decoder> decoder;

 private:
  TempFolder folder_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_QUANTIZE_TINY_H_
