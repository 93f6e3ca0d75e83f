#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"

namespace spillway {
namespace {

using test::GgufWriter;
using test::MetaValue;
using test::TensorType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A small valid file with every kind of entry.
GgufWriter SmallFile() {
  GgufWriter writer;
  writer.Set("u8", MetaValue::U8(200));
  writer.Set("i8", MetaValue::I8(-100));
  writer.Set("u16", MetaValue::U16(60000));
  writer.Set("i16", MetaValue::I16(-30000));
  writer.Set("u32", MetaValue::U32(4000000000u));
  writer.Set("i32", MetaValue::I32(-2000000000));
  writer.Set("u64", MetaValue::U64(std::numeric_limits<uint64_t>::max()));
  writer.Set("i64", MetaValue::I64(std::numeric_limits<int64_t>::min()));
  writer.Set("f32", MetaValue::F32(0.5f));
  writer.Set("f64", MetaValue::F64(1e300));
  writer.Set("yes", MetaValue::Bool(true));
  writer.Set("no", MetaValue::Bool(false));
  writer.Set("text", MetaValue::String("gr\xc3\xbc\xc3\x9f"));
  writer.Set("empty", MetaValue::String(""));
  writer.Set("bools", MetaValue::Array(7, {MetaValue::Bool(true), MetaValue::Bool(false)}));
  writer.Set("u16s", MetaValue::Array(2, {MetaValue::U16(1), MetaValue::U16(65535)}));
  writer.Set("i8s", MetaValue::Array(1, {MetaValue::I8(-1), MetaValue::I8(127)}));
  writer.Set("f32s", MetaValue::Array(6, {MetaValue::F32(0.25f), MetaValue::F32(-2.0f)}));
  writer.Set("texts", MetaValue::Strings({"a", "", "ccc"}));
  writer.Set("nothing", MetaValue::Array(4, {}));
  writer.AddTensor("matrix", {32, 3}, TensorType::kQ4_1, std::vector<float>(96, 1.5f));
  writer.AddTensor("vector", {5}, TensorType::kF32, std::vector<float>{1, 2, 3, 4, 5});
  writer.AddTensor("half", {2, 2, 2}, TensorType::kF16, std::vector<float>(8, -0.5f));
  return writer;
}

class GgufTest : public testing::Test {
 protected:
  Result<std::shared_ptr<const GgufFile>> OpenBytes(const std::string& bytes) {
    test::WriteBytes(path_, bytes);
    return GgufFile::Open(path_);
  }
  Result<std::shared_ptr<const GgufFile>> Open(const GgufWriter& writer) {
    return OpenBytes(writer.Serialize());
  }
  std::shared_ptr<const GgufFile> OpenGood(const GgufWriter& writer) {
    auto file = Open(writer);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return file.ok() ? *file : nullptr;
  }

  test::TempFolder folder_;
  const std::string path_ = folder_.File("model.gguf");
};

TEST_F(GgufTest, ReadsEveryMetadataTypeInBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = SmallFile();
    writer.version = version;
    const auto file = OpenGood(writer);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->path(), path_);
    EXPECT_EQ(file->metadata().size(), writer.metadata.size());
    EXPECT_EQ(*file->GetUint("u8"), 200u);
    EXPECT_EQ(*file->GetUint("u16"), 60000u);
    EXPECT_EQ(*file->GetUint("u32"), 4000000000u);
    EXPECT_EQ(*file->GetUint("u64"), std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(std::get<int64_t>(file->metadata().at("i8")), -100);
    EXPECT_EQ(std::get<int64_t>(file->metadata().at("i16")), -30000);
    EXPECT_EQ(std::get<int64_t>(file->metadata().at("i32")), -2000000000);
    EXPECT_EQ(std::get<int64_t>(file->metadata().at("i64")), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(*file->GetFloat("f32"), 0.5);
    EXPECT_EQ(*file->GetFloat("f64"), 1e300);
    EXPECT_TRUE(*file->GetBool("yes"));
    EXPECT_FALSE(*file->GetBool("no"));
    EXPECT_EQ(*file->GetString("text"), "gr\xc3\xbc\xc3\x9f");
    EXPECT_EQ(*file->GetString("empty"), "");
    EXPECT_THAT(std::get<std::vector<bool>>(file->metadata().at("bools")),
                ElementsAre(true, false));
    EXPECT_THAT(*file->GetIntArray("u16s"), ElementsAre(1, 65535));
    EXPECT_THAT(*file->GetIntArray("i8s"), ElementsAre(-1, 127));
    EXPECT_THAT(*file->GetFloatArray("f32s"), ElementsAre(0.25, -2.0));
    EXPECT_THAT(*file->GetFloatArray("i8s"), ElementsAre(-1.0, 127.0));
    EXPECT_THAT(*file->GetStringArray("texts"), ElementsAre("a", "", "ccc"));
    EXPECT_TRUE(file->GetIntArray("nothing")->empty());
  }
}

TEST_F(GgufTest, TypedAccessChecksPresenceTypeAndRange) {
  GgufWriter writer = SmallFile();
  writer.Set("minus", MetaValue::I32(-1));
  writer.Set("plus", MetaValue::I32(7));
  writer.Set("huge", MetaValue::Array(10, {MetaValue::U64(uint64_t{1} << 63)}));
  const auto file = OpenGood(writer);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->GetUint("plus"), 7u);
  EXPECT_EQ(*file->GetFloat("minus"), -1.0);
  EXPECT_TRUE(file->Has("minus"));
  EXPECT_FALSE(file->Has("absent"));
  EXPECT_EQ(file->GetUint("absent").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(file->GetBool("absent").status().message(),
              AllOf(HasSubstr(path_), HasSubstr("\"absent\"")));
  const std::vector<Status> errors = {
      file->GetUint("minus").status(),       file->GetUint("text").status(),
      file->GetUint("yes").status(),         file->GetFloat("text").status(),
      file->GetBool("u8").status(),          file->GetString("u8").status(),
      file->GetStringArray("u16s").status(), file->GetIntArray("f32s").status(),
      file->GetIntArray("huge").status(),    file->GetFloatArray("texts").status(),
  };
  for (const Status& error : errors) {
    EXPECT_EQ(error.code(), StatusCode::kCorruptData) << error.ToString();
    EXPECT_THAT(error.message(), AllOf(HasSubstr(path_), HasSubstr("expected")));
  }
}

TEST_F(GgufTest, FindsTensorsWhereTheyAre) {
  for (const uint64_t alignment : {uint64_t{8}, uint64_t{32}, uint64_t{4096}}) {
    GgufWriter writer = SmallFile();
    writer.alignment = alignment;
    const auto file = OpenGood(writer);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->alignment(), alignment);
    ASSERT_EQ(file->tensors().size(), 3u);
    for (const test::WriterTensor& written : writer.tensors) {
      const GgufTensor* tensor = file->FindTensor(written.name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->dims, written.dims);
      EXPECT_EQ(static_cast<uint32_t>(tensor->type), written.type);
      EXPECT_EQ(tensor->file_offset % alignment, 0u);
      EXPECT_EQ(
          std::string(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size()),
          written.data);
    }
    EXPECT_EQ(file->FindTensor("matrix")->rows(), 3u);
    EXPECT_EQ(file->FindTensor("matrix")->cols(), 32u);
    EXPECT_EQ(file->FindTensor("half")->rows(), 4u);
    EXPECT_EQ(file->FindTensor("vector")->rows(), 1u);
    EXPECT_EQ(file->FindTensor("absent"), nullptr);
  }
}

TEST_F(GgufTest, FileWithoutEntries) {
  const auto file = OpenGood(GgufWriter());
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->metadata().empty());
  EXPECT_TRUE(file->tensors().empty());
}

TEST_F(GgufTest, MissingFile) {
  EXPECT_EQ(GgufFile::Open(folder_.File("absent")).status().code(), StatusCode::kNotFound);
}

// One thing wrong in an otherwise valid file.
struct BadCase {
  const char* name;
  std::function<void(GgufWriter*)> change;
  StatusCode code;
  std::vector<std::string> message;  // parts of it
};

void SetArrayLength(GgufWriter* writer, const std::string& key, uint64_t length) {
  for (auto& [present, value] : writer->metadata) {
    if (present == key) std::memcpy(value.bytes.data() + 4, &length, sizeof(length));
  }
}

std::vector<BadCase> BadCases() {
  static constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  const auto corrupt = StatusCode::kCorruptData;
  const auto unsupported = StatusCode::kUnsupported;
  std::vector<BadCase> cases = {
      {"version 1",
       [](GgufWriter* w) { w->version = 1; },
       unsupported,
       {"header at byte 4", "version 1", "2 and 3"}},
      {"version 4", [](GgufWriter* w) { w->version = 4; }, unsupported, {"version 4"}},
      {"version 0", [](GgufWriter* w) { w->version = 0; }, unsupported, {"version 0"}},
      {"big endian", [](GgufWriter* w) { w->version = 3u << 24; }, unsupported, {"big-endian"}},
      {"tensor count",
       [](GgufWriter* w) { w->tensor_count = kHuge; },
       corrupt,
       {"header at byte 8", "tensor count", "18446744073709551615"}},
      {"tensor count near 2^64",
       [](GgufWriter* w) { w->tensor_count = kHuge / 33 + 2; },
       corrupt,
       {"tensor count"}},
      {"metadata count",
       [](GgufWriter* w) { w->metadata_count = kHuge - 1; },
       corrupt,
       {"header at byte 16", "metadata count"}},
      {"count too large for the file",
       [](GgufWriter* w) { w->tensor_count = 1000; },
       corrupt,
       {"1000 tensors", "truncated"}},
      {"one tensor too many",
       [](GgufWriter* w) { w->tensor_count = 4; },
       corrupt,
       {"tensor entry 4 of 4"}},
      {"value type",
       [](GgufWriter* w) {
         w->Set("u8", {13, "x"});
       },
       corrupt,
       {"metadata entry 1 of 20 \"u8\"", "value type is 13"}},
      {"bool value",
       [](GgufWriter* w) {
         w->Set("yes", {7, "\x02"});
       },
       corrupt,
       {"\"yes\"", "is 2, expected 0 or 1"}},
      {"bool in array",
       [](GgufWriter* w) {
         w->Set("bools", MetaValue::Array(7, {MetaValue::Bool(true), {7, "\xff"}}));
       },
       corrupt,
       {"\"bools\"", "is 255"}},
      {"array of arrays",
       [](GgufWriter* w) { w->Set("u8", MetaValue::Array(9, {MetaValue::Strings({"a"})})); },
       unsupported,
       {"\"u8\"", "array of arrays"}},
      {"array element type",
       [](GgufWriter* w) { w->Set("u8", MetaValue::Array(77, {})); },
       corrupt,
       {"element type is 77"}},
      {"array length",
       [](GgufWriter* w) { SetArrayLength(w, "u16s", kHuge); },
       corrupt,
       {"\"u16s\"", "array length is 18446744073709551615"}},
      {"array length times size",
       [](GgufWriter* w) { SetArrayLength(w, "u16s", 300); },
       corrupt,
       {"\"u16s\"", "300 values of 2 bytes"}},
      {"string array length",
       [](GgufWriter* w) { SetArrayLength(w, "texts", kHuge / 8); },
       corrupt,
       {"\"texts\"", "array length"}},
      {"string length",
       [](GgufWriter* w) {
         w->Set("text", {8, std::string(8, '\xff') + "abc"});
       },
       corrupt,
       {"\"text\"", "needs 18446744073709551615 bytes", "truncated"}},
      {"empty key",
       [](GgufWriter* w) { w->metadata[2].first = ""; },
       corrupt,
       {"metadata entry 3", "key is empty"}},
      {"long key",
       [](GgufWriter* w) { w->metadata[2].first = std::string(70000, 'k'); },
       corrupt,
       {"metadata entry 3", "65535"}},
      {"key twice",
       [](GgufWriter* w) { w->metadata[2].first = "u8"; },
       corrupt,
       {"metadata entry 3 of 20 \"u8\"", "twice"}},
      {"no dimensions",
       [](GgufWriter* w) { w->tensors[1].dims = {}; },
       corrupt,
       {"tensor entry 2 of 3 \"vector\"", "0 dimensions"}},
      {"five dimensions",
       [](GgufWriter* w) {
         w->tensors[1].dims = {5, 1, 1, 1, 1};
       },
       corrupt,
       {"\"vector\"", "5 dimensions, expected 1 to 4"}},
      {"zero dimension",
       [](GgufWriter* w) {
         w->tensors[0].dims = {32, 0};
       },
       corrupt,
       {"\"matrix\"", "zero"}},
      {"product overflows",
       [](GgufWriter* w) {
         w->tensors[1].dims = {1u << 31, 1u << 31, 1u << 31};
       },
       corrupt,
       {"\"vector\"", "2^63"}},
      {"product wraps to a small number",
       [](GgufWriter* w) {
         w->tensors[1].dims = {uint64_t{1} << 32, uint64_t{1} << 32, 5};
       },
       corrupt,
       {"\"vector\"", "2^63"}},
      {"larger than the file",
       [](GgufWriter* w) { w->tensors[1].dims = {uint64_t{1} << 62}; },
       corrupt,
       {"\"vector\"", "does not fit"}},
      {"not whole blocks",
       [](GgufWriter* w) {
         w->tensors[0].dims = {48, 2};
       },
       corrupt,
       {"\"matrix\"", "48", "Q4_1", "blocks of 32"}},
      {"foreign type",
       [](GgufWriter* w) { w->tensors[0].type = 20; },
       unsupported,
       {"\"matrix\"", "20 (IQ4_NL)", "Q4_1", "Q6_K", "BF16"}},
      {"no type",
       [](GgufWriter* w) { w->tensors[0].type = 4000; },
       unsupported,
       {"4000 (unknown)"}},
      {"misaligned",
       [](GgufWriter* w) { w->tensors[1].offset = 66; },
       corrupt,
       {"\"vector\"", "66", "alignment, 32"}},
      {"offset out of range",
       [](GgufWriter* w) { w->tensors[1].offset = kHuge - 31; },
       corrupt,
       {"\"vector\"", "needs 20 bytes", "truncated"}},
      {"end out of range",
       [](GgufWriter* w) { w->tensors[0].offset = 96; },
       corrupt,
       {"\"matrix\"", "needs 60 bytes at offset 96", "truncated"}},
      {"overlap",
       [](GgufWriter* w) { w->tensors[1].offset = 32; },
       corrupt,
       {"\"matrix\"", "\"vector\"", "overlap"}},
      {"same place",
       [](GgufWriter* w) { w->tensors[2].offset = 64; },
       corrupt,
       {"\"half\"", "\"vector\"", "overlap"}},
      {"tensor twice",
       [](GgufWriter* w) { w->tensors[2].name = "matrix"; },
       corrupt,
       {"tensor entry 3 of 3 \"matrix\"", "twice"}},
      {"empty tensor name",
       [](GgufWriter* w) { w->tensors[2].name = ""; },
       corrupt,
       {"tensor entry 3", "name is empty"}},
      {"binary name in the message",
       [](GgufWriter* w) {
         w->tensors[2].name = "a\"\n\xff";
         w->tensors[2].type = 99;
       },
       unsupported,
       {"\"a\\x22\\x0a\\xff\""}},
      {"alignment of a wrong type",
       [](GgufWriter* w) { w->Set("general.alignment", MetaValue::String("32")); },
       corrupt,
       {"general.alignment", "a string"}},
  };
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{4}, uint64_t{33}, uint64_t{48},
                                   uint64_t{1} << 21, uint64_t{1} << 63, kHuge}) {
    cases.push_back(
        {"alignment",
         [alignment](GgufWriter* w) { w->Set("general.alignment", MetaValue::U64(alignment)); },
         corrupt,
         {"general.alignment", std::to_string(alignment), "power of two"}});
  }
  return cases;
}

TEST_F(GgufTest, RejectsWhatIsWrongAndSaysWhere) {
  for (const BadCase& bad : BadCases()) {
    SCOPED_TRACE(bad.name);
    GgufWriter writer = SmallFile();
    bad.change(&writer);
    const auto file = Open(writer);
    EXPECT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), bad.code);
    EXPECT_THAT(file.status().message(), HasSubstr(path_));
    for (const std::string& part : bad.message) {
      EXPECT_THAT(file.status().message(), HasSubstr(part));
    }
  }
}

TEST_F(GgufTest, RejectsOtherFiles) {
  EXPECT_THAT(OpenBytes("").status().message(), AllOf(HasSubstr("header"), HasSubstr("magic")));
  EXPECT_THAT(OpenBytes("GG").status().message(), HasSubstr("truncated"));
  const auto text = OpenBytes("PK\x03\x04 something else altogether");
  EXPECT_EQ(text.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(text.status().message(), AllOf(HasSubstr("not a GGUF file"), HasSubstr("PK\\x03")));
  EXPECT_THAT(OpenBytes("lmgg" + std::string(40, '\0')).status().message(),
              HasSubstr("before GGUF"));
  EXPECT_THAT(OpenBytes("FUGG" + std::string(40, '\0')).status().message(),
              HasSubstr("big-endian"));
}

TEST_F(GgufTest, TruncatedAtEveryByte) {
  const GgufWriter writer = SmallFile();
  const std::string bytes = writer.Serialize();
  // The last tensor has 16 bytes; the padding after it may be missing.
  const size_t needed = bytes.size() - 32 + 16;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto file = OpenBytes(bytes.substr(0, size));
    ASSERT_EQ(file.ok(), size >= needed) << size;
    if (file.ok()) continue;
    EXPECT_EQ(file.status().code(), StatusCode::kCorruptData) << size;
    EXPECT_THAT(file.status().message(), AllOf(HasSubstr("at byte"), HasSubstr("truncated")))
        << size;
  }
}

// Reads everything that a file offers, so that a sanitizer sees bad spans.
uint64_t Touch(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    for (const std::byte byte : tensor.data) sum += static_cast<uint64_t>(byte);
    std::vector<float> values(tensor.rows() * tensor.cols());
    DequantizeBlocks(tensor.type, tensor.data.data(), values.size(), values.data());
  }
  for (const auto& [key, value] : file.metadata()) {
    sum += key.size();
    if (const auto* texts = std::get_if<GgufStringArray>(&value)) {
      for (const std::string_view text : *texts) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
      }
    }
  }
  return sum;
}

TEST_F(GgufTest, DamagedFilesNeverCrash) {
  const std::string good = SmallFile().Serialize();
  test::Random random(2024);
  int opened = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = good;
    const uint64_t flips = 1 + random.Below(4);
    for (uint64_t flip = 0; flip < flips; ++flip) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(3)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
          break;
        case 1:
          bytes[at] = static_cast<char>(random.Below(256));
          break;
        default: {  // a length or count gone wild
          const uint64_t wild = ~uint64_t{0} >> random.Below(64);
          const size_t start = std::min(at, bytes.size() - sizeof(wild));
          std::memcpy(bytes.data() + start, &wild, sizeof(wild));
        }
      }
    }
    const auto file = OpenBytes(bytes);
    if (file.ok()) {
      ++opened;
      Touch(**file);
    } else {
      ++refused;
      ASSERT_THAT(file.status().message(), HasSubstr(path_));
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 1000);
}

TEST(GgufTypeTest, UnknownNumbers) {
  EXPECT_EQ(GgufTypeName(static_cast<GgufType>(4)), "unknown");
  EXPECT_EQ(GgufBlockOf(static_cast<GgufType>(4)).elements, 0u);
  EXPECT_EQ(GgufBlockOf(static_cast<GgufType>(4)).bytes, 0u);
}

}  // namespace
}  // namespace spillway
