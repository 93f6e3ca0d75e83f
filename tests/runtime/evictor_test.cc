// The graph attention_sink_evictor: the integers of the cache's own code, in packages and
// without, and what a package with one does by default.

#include "decoder/evictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "base/float16.h"
#include "base/log.h"
#include "graph/legalize.h"
#include "host/executor.h"
#include "runtime/evict.h"
#include "spillway/session.h"
#include "tests/runtime/allocation_counter.h"
#include "tests/runtime/small_model.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

// A cache full of random numbers, as bytes.
struct Caches {
  std::vector<std::vector<std::byte>> k, v;  // a layer
};

Caches RandomCaches(const EvictorOptions& options, test::Random& random) {
  const size_t count = size_t{options.kv_heads} * options.head_dim * options.columns;
  Caches caches;
  for (uint32_t layer = 0; layer < 2 * options.layers; ++layer) {
    std::vector<std::byte> bytes(count * DTypeSize(options.dtype));
    for (size_t i = 0; i < count; ++i) {
      const auto half = FloatToHalf(static_cast<float>(random.Gauss()));
      const auto integer = static_cast<uint16_t>(random.Below(65536));
      const uint16_t value = options.dtype == DType::kF16 ? half : integer;
      std::memcpy(&bytes[i * DTypeSize(options.dtype)], &value, DTypeSize(options.dtype));
    }
    (layer < options.layers ? caches.k : caches.v).push_back(std::move(bytes));
  }
  return caches;
}

EvictorOptions RandomOptions(test::Random& random, DType dtype) {
  EvictorOptions options;
  options.name = kEvictorGraphName;
  options.dtype = dtype;
  options.layers = 1 + static_cast<uint32_t>(random.Below(2));
  options.kv_heads = 1 + static_cast<uint32_t>(random.Below(3));
  options.head_dim = 2 * (1 + static_cast<uint32_t>(random.Below(8)));
  options.columns = 3 + static_cast<uint32_t>(random.Below(90));
  options.sink = static_cast<uint32_t>(random.Below(options.columns - 1));
  options.batch = 1 + static_cast<uint32_t>(random.Below(options.columns - options.sink - 1));
  options.rope.theta = 100.0f;
  // Also heads of which only a part turns, or nothing.
  options.rope.dim = 2 * static_cast<uint32_t>(random.Below(options.head_dim / 2 + 1));
  for (uint32_t layer = 0; layer < options.layers && dtype != DType::kF16; ++layer) {
    const auto scale = static_cast<float>(0.001 + random.Uniform());
    const Encoding encoding = SymmetricEncoding(dtype, 100 * scale);
    options.k.push_back(encoding);
    options.v.push_back(encoding);
  }
  return options;
}

// What the graph makes of the caches: outputs in order.
std::vector<std::vector<std::byte>> RunGraph(const EvictorOptions& options, Caches caches) {
  Result<Graph> built = BuildEvictor(options);
  EXPECT_TRUE(built.ok()) << built.status().ToString();
  Result<Graph> legal = Legalize(*built, {});
  EXPECT_TRUE(legal.ok()) << legal.status().ToString();
  const auto graph = std::make_shared<const Graph>(std::move(legal).value());
  ThreadPool pool(1);
  auto executor = host::Executor::Create(graph, &pool);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    std::ranges::copy(caches.k[layer], (*executor)->input(layer).begin());
    std::ranges::copy(caches.v[layer], (*executor)->input(options.layers + layer).begin());
  }
  EXPECT_TRUE((*executor)->Run().ok());
  std::vector<std::vector<std::byte>> outputs;
  for (size_t i = 0; i < graph->outputs().size(); ++i) {
    const auto bytes = (*executor)->output(i);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

// Calls check(expected, found) with every value of a key, then of a value, in a column that
// means something after the eviction.
template <typename Check>
void Compare(const EvictorOptions& options, const Caches& expected,
             const std::vector<std::vector<std::byte>>& found, const Check& check) {
  const size_t element = DTypeSize(options.dtype);
  const size_t kept = options.columns - options.batch;
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    const size_t rows = size_t{options.kv_heads} * options.head_dim;
    for (size_t i = 0; i < rows * options.columns; ++i) {
      const size_t dim = options.head_dim, columns = options.columns;
      uint16_t a = 0, b = 0;
      if (i % columns < kept) {
        std::memcpy(&a, &expected.k[layer][i * element], element);
        std::memcpy(&b, &found[layer][i * element], element);
        check(a, b, true);
      }
      if (i / dim % columns < kept) {
        std::memcpy(&a, &expected.v[layer][i * element], element);
        std::memcpy(&b, &found[options.layers + layer][i * element], element);
        check(a, b, false);
      }
    }
  }
}

// Evicts with KvCache from a cache that has a token in every column.
void EvictByCode(const EvictorOptions& options, const std::vector<float>& rotation,
                 Caches& caches) {
  const KvShape shape = {options.layers, options.kv_heads, options.head_dim, options.columns + 1,
                         options.dtype};
  std::vector<std::byte*> k, v;
  std::vector<const std::byte*> k_all, v_all;
  const Caches copy = caches;
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    k.push_back(caches.k[layer].data());
    v.push_back(caches.v[layer].data());
    k_all.push_back(copy.k[layer].data());
    v_all.push_back(copy.v[layer].data());
  }
  KvCache cache(shape, k, v);
  cache.LoadPrefix(k_all, v_all, options.columns);
  cache.Evict(options.sink, MakeKeyShift(options.rope, options.batch, rotation), options.k);
  ASSERT_EQ(cache.size(), options.columns - options.batch);
}

TEST(EvictorTest, GraphAndCodeGiveTheSameBits) {
  test::Random random(11);
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF16}) {
    for (int round = 0; round < 120; ++round) {
      const EvictorOptions options = RandomOptions(random, dtype);
      Caches caches = RandomCaches(options, random);
      const auto found = RunGraph(options, caches);
      EvictByCode(options, {}, caches);
      int different = 0;
      Compare(options, caches, found, [&](uint16_t a, uint16_t b, bool) { different += a != b; });
      ASSERT_EQ(different, 0) << DTypeName(dtype) << " sink " << options.sink << ","
                              << options.batch << " of " << options.columns << ", "
                              << options.rope.dim << " of " << options.head_dim << " turn";
    }
  }
}

// A Hadamard matrix with signs, as recipes make them.
std::vector<float> RotationOf(uint32_t dim, test::Random& random) {
  std::vector<float> matrix(size_t{dim} * dim);
  for (uint32_t d = 0; d < dim; ++d) {
    const float sign = random.Below(2) == 0 ? 1.0f : -1.0f;
    for (uint32_t n = 0; n < dim; ++n) {
      const bool odd = __builtin_popcount(n & d) % 2 == 1;
      matrix[n * dim + d] = (odd ? -sign : sign) / std::sqrt(static_cast<float>(dim));
    }
  }
  return matrix;
}

TEST(EvictorTest, RotatedKeysAreWithinAStep) {
  test::Random random(13);
  for (int round = 0; round < 60; ++round) {
    EvictorOptions options = RandomOptions(random, DType::kU8);
    options.head_dim = 16;
    options.rope.dim = 16;
    options.key_rotation = RotationOf(16, random);
    Caches caches = RandomCaches(options, random);
    const auto found = RunGraph(options, caches);
    EvictByCode(options, options.key_rotation, caches);
    int far = 0, different = 0, keys = 0;
    Compare(options, caches, found, [&](uint16_t a, uint16_t b, bool is_key) {
      keys += is_key ? 1 : 0;
      different += a != b ? 1 : 0;
      far += std::abs(int{a} - int{b}) > (is_key ? 1 : 0) ? 1 : 0;
    });
    ASSERT_EQ(far, 0);
    ASSERT_LE(different, keys / 4 + 2);
  }
}

TEST(EvictorTest, SizesThatCannotBe) {
  test::Random random(1);
  EvictorOptions options = RandomOptions(random, DType::kU8);
  options.columns = 20;
  options.sink = 4;
  options.batch = 0;
  EXPECT_THAT(BuildEvictor(options).status().message(), HasSubstr("batch of 0"));
  options.batch = 16;
  EXPECT_THAT(BuildEvictor(options).status().message(), HasSubstr("4,16"));
  options.batch = 15;
  EXPECT_TRUE(BuildEvictor(options).ok());
  options.dtype = DType::kF32;
  EXPECT_EQ(BuildEvictor(options).status().code(), StatusCode::kUnsupported);
}

struct PackageCase {
  const char* mode;
  uint32_t kv_bits;
  uint32_t shards;
  const char* prefix;
};

std::vector<std::vector<float>> FeedWith(const std::shared_ptr<const Package>& package,
                                         bool evictor, std::span<const uint32_t> tokens) {
  const auto executor = HostModelExecutor::Open(package, {.threads = 1, .evictor = evictor});
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  Generator generator(executor->get());
  const EvictorInfo& info = *package->manifest().evictor;
  const Status set =
      generator.SetAttentionSink({info.sink, info.batch}, package->manifest().config.rope);
  EXPECT_TRUE(set.ok()) << set.ToString();
  EXPECT_EQ(generator.evicts_by_executor(), evictor);
  auto rows = test::FeedAll(generator, tokens);
  EXPECT_GT(generator.evictions(), 5u);
  return rows;
}

TEST(EvictorTest, APackagesEvictorChangesNoBit) {
  const test::TinyModelSpec spec = test::SmallSpec(5);
  const auto tokens = test::RandomTokens(120, spec.vocab, 4);
  for (const PackageCase& c :
       {PackageCase{"kv", 8, 1, "none"}, PackageCase{"hybrid", 16, 2, "none"},
        PackageCase{"hybrid", 8, 2, "1,7"}, PackageCase{"lookahead", 8, 1, "none"}}) {
    SCOPED_TRACE(testing::Message() << c.mode << " " << c.kv_bits << " " << c.shards);
    test::TempFolder folder;
    CompileOptions options = test::TinyCompileOptions();
    options.mode = c.mode;
    options.prefill_ar_len = 6;
    options.lookahead = {3, 2, 1};
    options.context_len = 32;
    options.num_shards = c.shards;
    options.kv_bits = c.kv_bits;
    options.prefix_tokens = c.prefix;
    options.attention_sink = AttentionSink{3, 9};
    const auto package = Package::Open(test::MakeTinyPackage(folder.path(), options, spec));
    ASSERT_TRUE(package.ok()) << package.status().ToString();
    const PackageManifest& manifest = (*package)->manifest();
    ASSERT_TRUE(manifest.evictor.has_value());
    EXPECT_EQ(manifest.evictor->sink, manifest.prefix_tokens.empty() ? 3u : 2u);
    EXPECT_EQ(manifest.evictor->batch, 9u);
    EXPECT_EQ(FeedWith(*package, true, tokens), FeedWith(*package, false, tokens));
  }
}

// Names of the files, with their hashes.
std::vector<std::pair<std::string, std::string>> FilesOf(const Package& package) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const PackageFile& file : package.manifest().files) files.emplace_back(file.name, file.hash);
  return files;
}

class AddEvictorTest : public ::testing::Test {
 protected:
  AddEvictorTest() {
    add_.package_path = test::MakeTinyPackage(folder_.path());  // context 64
    add_.htp_build = HtpBuild::kOff;
  }
  std::shared_ptr<const Package> Open() const { return Package::Open(add_.package_path).value(); }

  test::TempFolder folder_;
  AddEvictorOptions add_;
};

TEST_F(AddEvictorTest, AddsReplacesAndLeavesTheRestAlone) {
  const auto before = FilesOf(*Open());
  for (const AttentionSink& sink : {AttentionSink{4, 20}, AttentionSink{0, 30}}) {
    add_.sink = sink;
    const Result<EvictorReport> report = AddEvictor(add_);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_THAT(report->htp_left_out, HasSubstr("not asked for"));
    const auto package = Open();
    const PackageManifest& manifest = package->manifest();
    ASSERT_TRUE(manifest.evictor.has_value());
    EXPECT_EQ(manifest.evictor->sink, sink.sink);
    EXPECT_EQ(manifest.evictor->batch, sink.batch);
    ASSERT_NE(package->evictor(), nullptr);
    EXPECT_EQ(package->evictor()->name(), kEvictorGraphName);
    auto after = FilesOf(*package);
    EXPECT_EQ(
        std::erase_if(after, [](const auto& file) { return file.first.starts_with("evictor"); }),
        2u);
    EXPECT_EQ(after, before);
    EXPECT_TRUE(FileExists(package->PathOf("report.json")));
  }
}

TEST_F(AddEvictorTest, WhatFailsLeavesThePackageAsItWas) {
  const auto before = FilesOf(*Open());
  add_.sink = {4, 60};
  const Status status = AddEvictor(add_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("4,60"));
  EXPECT_THAT(status.message(), HasSubstr("at most 62 with a context of 64"));
  add_.sink = {4, 0};
  EXPECT_EQ(AddEvictor(add_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FilesOf(*Open()), before);
  EXPECT_EQ(ListFolder(folder_.path())->size(), 2u) << "the model and the package";
  add_.package_path = folder_.File("nothing");
  EXPECT_EQ(AddEvictor(add_).status().code(), StatusCode::kNotFound);
}

TEST_F(AddEvictorTest, DamageIsFound) {
  add_.sink = {4, 20};
  ASSERT_TRUE(AddEvictor(add_).ok());
  std::ofstream(add_.package_path + "/evictor.fb", std::ios::app) << "x";
  const Status status = Package::Open(add_.package_path).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("evictor.fb"));
}

// A package that was made for it goes on by itself; 0,0 ends at the context's end.
TEST_F(AddEvictorTest, SessionsUseItByDefault) {
  add_.sink = {4, 20};
  ASSERT_TRUE(AddEvictor(add_).ok());
  SessionOptions options;
  options.package_path = add_.package_path;
  RunOptions run;
  run.ignore_eos = true;
  run.temperature = 0;
  run.max_new_tokens = 150;
  const std::vector<uint32_t> prompt = {1, 10, 20, 30};
  const auto answer = [&](std::optional<AttentionSink> sink) {
    options.attention_sink = sink;
    const auto session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return (*session)->GenerateFromTokens(prompt, run).value();
  };
  const Answer by_default = answer(std::nullopt);
  EXPECT_EQ(by_default.tokens.size(), 150u);
  EXPECT_GT(by_default.stats.evictions, 3u);
  EXPECT_EQ(by_default.tokens, answer(AttentionSink{4, 20}).tokens);
  EXPECT_EQ(answer(AttentionSink{4, 10}).tokens.size(), 150u) << "another batch, by code";
  const Answer ended = answer(AttentionSink{0, 0});
  EXPECT_EQ(ended.stop_reason, "context_full");
  EXPECT_EQ(ended.stats.evictions, 0u);
}

// With a prefix that is the sink, whatever is asked for; who asks for another hears of it.
TEST(SinkAndPrefixTest, ThePrefixIsTheSink) {
  test::TempFolder folder;
  CompileOptions compile = test::TinyCompileOptions();
  compile.prefix_tokens = "1,7";
  SessionOptions options;
  options.package_path = test::MakeTinyPackage(folder.path(), compile);
  RunOptions run;
  run.ignore_eos = true;
  run.temperature = 0;
  run.max_new_tokens = 120;
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  std::vector<std::vector<uint32_t>> answers;
  for (const uint32_t sink : {2u, 0u, 1u, 5u}) {
    warnings.clear();
    options.attention_sink = AttentionSink{sink, 20};
    const auto session = Session::Open(options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    if (sink == 2) {
      EXPECT_THAT(warnings, ::testing::IsEmpty());
    } else {
      EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr("prefix of 2 tokens is the sink")));
    }
    answers.push_back((*session)->GenerateFromTokens(std::vector<uint32_t>{1, 7, 9}, run)->tokens);
    EXPECT_EQ(answers.back(), answers.front()) << "sink " << sink;
    EXPECT_EQ(answers.back().size(), 120u);
  }
  options.attention_sink = AttentionSink{0, 62};
  const Status status = Session::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("attention sink 2,62")) << "as it would be used";
  EXPECT_THAT(status.message(), HasSubstr("room for 63"));
  SetLogSink(nullptr);
}

// Nothing for a token: the steps between two evictions allocate nothing, one that evicts a
// few buffers, however many layers and tokens there are.
TEST(SinkAllocationTest, OnlyEvictionsAllocate) {
  for (const bool evictor : {false, true}) {
    test::TempFolder folder;
    CompileOptions compile = test::TinyCompileOptions();
    compile.mode = "lookahead";
    compile.context_len = 48;
    compile.lookahead = {3, 3, 2};
    if (evictor) compile.attention_sink = AttentionSink{3, 12};
    SessionOptions options;
    options.package_path = test::MakeTinyPackage(folder.path(), compile);
    options.attention_sink = AttentionSink{3, 12};
    options.threads = 1;
    for (const bool ahead : {true, false}) {
      options.lookahead.reset();
      if (!ahead) options.lookahead = LookaheadSizes{};
      const auto session = Session::Open(options);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      RunOptions run;
      run.ignore_eos = true;
      run.temperature = 0;
      run.max_new_tokens = 150;
      std::vector<int> counts;
      counts.reserve(400);
      test::allocations = 0;
      test::counting = true;
      const auto answer = (*session)->Generate("Hi", run, [&](std::string_view) {
        counts.push_back(test::allocations);
        return true;
      });
      test::counting = false;
      ASSERT_TRUE(answer.ok()) << answer.status().ToString();
      ASSERT_GT(answer->stats.evictions, 5u);
      uint32_t steps = 0;
      for (size_t i = 1; i < counts.size(); ++i) {
        steps += counts[i] != counts[i - 1] ? 1 : 0;
        EXPECT_LT(counts[i] - counts[i - 1], 60) << "for one eviction";
      }
      EXPECT_LE(steps, answer->stats.evictions);
      EXPECT_GT(counts.size(), 2u * answer->stats.evictions);
    }
  }
}

}  // namespace
}  // namespace spillway
