#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

namespace spillway {
namespace {

// Limits that no real model comes near. They keep a hostile file from taking
// much more memory than its own size.
constexpr uint64_t kMaxEntries = uint64_t{1} << 20;        // metadata keys; tensors
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;  // all arrays together
constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;   // a metadata string
constexpr uint64_t kMaxNameBytes = 65535;                  // a key or a tensor's name
constexpr uint64_t kMinAlignment = 8, kMaxAlignment = uint64_t{1} << 20;
constexpr uint32_t kMaxDims = 4;

// The smallest metadata entry: key of one byte, type, value of one byte.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
// The smallest tensor entry: name of one byte, rank, one dimension, type, offset.
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// The format's numbers for the types of metadata values.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct TypeInfo {
  GgufType type;
  std::string_view name;
  GgufBlock block;
};

constexpr std::array<TypeInfo, 13> kTypes = {{
    {GgufType::kF32, "F32", {1, 4}},
    {GgufType::kF16, "F16", {1, 2}},
    {GgufType::kBF16, "BF16", {1, 2}},
    {GgufType::kQ4_0, "Q4_0", {32, 18}},
    {GgufType::kQ4_1, "Q4_1", {32, 20}},
    {GgufType::kQ5_0, "Q5_0", {32, 22}},
    {GgufType::kQ5_1, "Q5_1", {32, 24}},
    {GgufType::kQ8_0, "Q8_0", {32, 34}},
    {GgufType::kQ2_K, "Q2_K", {256, 84}},
    {GgufType::kQ3_K, "Q3_K", {256, 110}},
    {GgufType::kQ4_K, "Q4_K", {256, 144}},
    {GgufType::kQ5_K, "Q5_K", {256, 176}},
    {GgufType::kQ6_K, "Q6_K", {256, 210}},
}};

// Types that exist but cannot be read; only for messages.
constexpr std::array<std::pair<uint32_t, std::string_view>, 20> kForeignTypes = {{
    {4, "Q4_2"},    {5, "Q4_3"},     {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
    {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {26, "I32"},
    {27, "I64"},    {28, "F64"},     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},
}};

const TypeInfo* FindType(GgufType type) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [type](const TypeInfo& info) { return info.type == type; });
  return found == kTypes.end() ? nullptr : found;
}

std::string_view NameOfTypeNumber(uint32_t number) {
  for (const auto& [foreign, name] : kForeignTypes) {
    if (foreign == number) return name;
  }
  return number == 39 ? "MXFP4" : "unknown";
}

std::string SupportedTypes() {
  std::string list;
  for (const TypeInfo& info : kTypes) list.append(list.empty() ? "" : ", ").append(info.name);
  return list;
}

// Text from a file for a message: quoted, plain ASCII, not too long.
std::string Quote(std::string_view text) {
  constexpr size_t kMaxShown = 100;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      quoted += c;
    } else {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return quoted + (text.size() > kMaxShown ? "...\"" : "\"");
}

std::string DimsText(const std::vector<uint64_t>& dims) {
  std::string text = "[";
  for (const uint64_t dim : dims) text += (text.size() == 1 ? "" : ", ") + std::to_string(dim);
  return text + "]";
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const TypeInfo* info = FindType(type);
  return info == nullptr ? "unknown" : info->name;
}

GgufBlock GgufBlockOf(GgufType type) {
  const TypeInfo* info = FindType(type);
  return info == nullptr ? GgufBlock{0, 0} : info->block;
}

uint64_t GgufTensor::rows() const {
  uint64_t rows = 1;
  for (size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
  return rows;
}

// Reads the file front to back. `position_` never passes the end; `section_`
// says in messages where in the file it is.
class GgufParser {
 public:
  explicit GgufParser(GgufFile* file) : file_(*file), bytes_(file->mapping_.bytes()) {}

  Status Parse() {
    SPILLWAY_RETURN_IF_ERROR(ParseHeader());
    for (uint64_t i = 0; i < metadata_count_; ++i) SPILLWAY_RETURN_IF_ERROR(ParseMetadata(i));
    SPILLWAY_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < tensor_count_; ++i) SPILLWAY_RETURN_IF_ERROR(ParseTensor(i));
    SPILLWAY_RETURN_IF_ERROR(PlaceTensors());
    return CheckOverlaps();
  }

 private:
  uint64_t remaining() const { return bytes_.size() - position_; }

  Status Corrupt(uint64_t position, const std::string& text) const {
    return CorruptDataError(
        fmt::format("{}: {} at byte {}: {}", file_.path(), section_, position, text));
  }
  Status Unsupported(uint64_t position, const std::string& text) const {
    return UnsupportedError(
        fmt::format("{}: {} at byte {}: {}", file_.path(), section_, position, text));
  }
  Status Truncated(std::string_view field, uint64_t needed) const {
    return Corrupt(position_, fmt::format("the {} needs {} bytes but the file of {} bytes has only "
                                          "{} left. It is truncated or damaged; get it again",
                                          field, needed, bytes_.size(), remaining()));
  }

  template <typename T>
  Status Read(std::string_view field, T* value) {
    if (remaining() < sizeof(T)) return Truncated(field, sizeof(T));
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return OkStatus();
  }

  Status ReadString(std::string_view field, uint64_t max_bytes, std::string_view* text) {
    const uint64_t start = position_;
    uint64_t length = 0;
    SPILLWAY_RETURN_IF_ERROR(Read(fmt::format("length of the {}", field), &length));
    if (length > remaining()) return Truncated(field, length);
    if (length > max_bytes) {
      return Corrupt(start, fmt::format("the {} has {} bytes, more than the {} allowed", field,
                                        length, max_bytes));
    }
    *text = {reinterpret_cast<const char*>(bytes_.data()) + position_, length};
    position_ += length;
    return OkStatus();
  }

  // A key or a tensor's name.
  Status ReadName(std::string_view field, std::string_view* name) {
    const uint64_t start = position_;
    SPILLWAY_RETURN_IF_ERROR(ReadString(field, kMaxNameBytes, name));
    if (name->empty()) return Corrupt(start, fmt::format("the {} is empty", field));
    return OkStatus();
  }

  Status ReadBool(std::string_view field, bool* value) {
    const uint64_t start = position_;
    uint8_t byte = 0;
    SPILLWAY_RETURN_IF_ERROR(Read(field, &byte));
    if (byte > 1) {
      return Corrupt(start, fmt::format("the {} is {}, expected 0 or 1", field, byte));
    }
    *value = byte == 1;
    return OkStatus();
  }

  Status ReadCount(std::string_view field, uint64_t* count) {
    const uint64_t start = position_;
    SPILLWAY_RETURN_IF_ERROR(Read(field, count));
    if (*count > kMaxEntries) {
      return Corrupt(
          start, fmt::format("the {} is {}, more than the {} allowed", field, *count, kMaxEntries));
    }
    return OkStatus();
  }

  Status ParseHeader();
  Status ParseMetadata(uint64_t index);
  Status ParseValue(uint32_t type, GgufValue* value);
  Status ParseArray(GgufValue* value);
  template <typename Stored, typename Kept>
  Status ParseNumber(GgufValue* value);
  template <typename Stored, typename Kept>
  Status ParseNumbers(uint64_t count, GgufValue* value);
  Status ReadAlignment();
  Status ParseTensor(uint64_t index);
  Status ReadDims(std::vector<uint64_t>* dims);
  Status CheckSize(uint64_t position, const GgufTensor& tensor) const;
  Status PlaceTensors();
  Status CheckOverlaps() const;

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
  std::string section_;
  uint64_t metadata_count_ = 0, tensor_count_ = 0;
  uint64_t array_elements_ = 0;
};

Status GgufParser::ParseHeader() {
  section_ = "header";
  std::array<char, 4> magic{};
  SPILLWAY_RETURN_IF_ERROR(Read("magic", &magic));
  const std::string_view magic_text(magic.data(), magic.size());
  if (magic_text == "FUGG") {
    return Unsupported(0, "this is a big-endian GGUF file; convert the model as little endian");
  }
  if (magic_text == "lmgg" || magic_text == "fmgg" || magic_text == "tjgg" ||
      magic_text == "algg") {
    return Unsupported(0, "this is a GGML file from before GGUF; convert the model to GGUF again");
  }
  if (magic_text != "GGUF") {
    return Corrupt(0, fmt::format("this is not a GGUF file: it starts with {}, expected \"GGUF\"",
                                  Quote(magic_text)));
  }
  SPILLWAY_RETURN_IF_ERROR(Read("version", &file_.version_));
  if (file_.version_ != 0 && (file_.version_ & 0xffffu) == 0) {
    return Unsupported(4, "this is a big-endian GGUF file; convert the model as little endian");
  }
  if (file_.version_ < 2 || file_.version_ > 3) {
    return Unsupported(4, fmt::format("GGUF version {} is not supported, only 2 and 3; convert the "
                                      "model again",
                                      file_.version_));
  }
  SPILLWAY_RETURN_IF_ERROR(ReadCount("tensor count", &tensor_count_));
  SPILLWAY_RETURN_IF_ERROR(ReadCount("metadata count", &metadata_count_));
  const uint64_t least = tensor_count_ * kMinTensorBytes + metadata_count_ * kMinMetadataBytes;
  if (least > remaining()) {
    return Corrupt(8,
                   fmt::format("{} tensors and {} metadata entries need at least {} bytes but "
                               "the file of {} bytes has only {} left. It is truncated or "
                               "damaged; get it again",
                               tensor_count_, metadata_count_, least, bytes_.size(), remaining()));
  }
  return OkStatus();
}

Status GgufParser::ParseMetadata(uint64_t index) {
  section_ = fmt::format("metadata entry {} of {}", index + 1, metadata_count_);
  const uint64_t start = position_;
  std::string_view key;
  SPILLWAY_RETURN_IF_ERROR(ReadName("key", &key));
  section_ += " " + Quote(key);
  if (file_.metadata_.contains(key)) return Corrupt(start, "the key appears twice");
  uint32_t type = 0;
  SPILLWAY_RETURN_IF_ERROR(Read("value type", &type));
  GgufValue value;
  SPILLWAY_RETURN_IF_ERROR(ParseValue(type, &value));
  file_.metadata_.emplace(std::string(key), std::move(value));
  return OkStatus();
}

template <typename Stored, typename Kept>
Status GgufParser::ParseNumber(GgufValue* value) {
  Stored stored{};
  SPILLWAY_RETURN_IF_ERROR(Read("value", &stored));
  *value = static_cast<Kept>(stored);
  return OkStatus();
}

Status GgufParser::ParseValue(uint32_t type, GgufValue* value) {
  switch (type) {
    case kUint8:
      return ParseNumber<uint8_t, uint64_t>(value);
    case kInt8:
      return ParseNumber<int8_t, int64_t>(value);
    case kUint16:
      return ParseNumber<uint16_t, uint64_t>(value);
    case kInt16:
      return ParseNumber<int16_t, int64_t>(value);
    case kUint32:
      return ParseNumber<uint32_t, uint64_t>(value);
    case kInt32:
      return ParseNumber<int32_t, int64_t>(value);
    case kFloat32:
      return ParseNumber<float, double>(value);
    case kUint64:
      return ParseNumber<uint64_t, uint64_t>(value);
    case kInt64:
      return ParseNumber<int64_t, int64_t>(value);
    case kFloat64:
      return ParseNumber<double, double>(value);
    case kArray:
      return ParseArray(value);
    case kBool: {
      bool truth = false;
      SPILLWAY_RETURN_IF_ERROR(ReadBool("value", &truth));
      *value = truth;
      return OkStatus();
    }
    case kString: {
      std::string_view text;
      SPILLWAY_RETURN_IF_ERROR(ReadString("value", kMaxStringBytes, &text));
      *value = std::string(text);
      return OkStatus();
    }
    default:
      return Corrupt(position_ - sizeof(type),
                     fmt::format("the value type is {}, expected 0 to 12", type));
  }
}

template <typename Stored, typename Kept>
Status GgufParser::ParseNumbers(uint64_t count, GgufValue* value) {
  if (count > remaining() / sizeof(Stored)) {
    return Corrupt(position_, fmt::format("an array of {} values of {} bytes does not fit in the "
                                          "{} bytes left of the file. It is truncated or damaged; "
                                          "get it again",
                                          count, sizeof(Stored), remaining()));
  }
  std::vector<Kept> kept(count);
  for (uint64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Kept, bool>) {
      bool element = false;
      SPILLWAY_RETURN_IF_ERROR(ReadBool("array element", &element));
      kept[i] = element;
    } else {
      Stored stored{};
      SPILLWAY_RETURN_IF_ERROR(Read("array element", &stored));
      kept[i] = static_cast<Kept>(stored);  // NOLINT(bugprone-signed-char-misuse): a number
    }
  }
  *value = std::move(kept);
  return OkStatus();
}

Status GgufParser::ParseArray(GgufValue* value) {
  const uint64_t start = position_;
  uint32_t type = 0;
  uint64_t count = 0;
  SPILLWAY_RETURN_IF_ERROR(Read("array element type", &type));
  SPILLWAY_RETURN_IF_ERROR(Read("array length", &count));
  // Every element has at least one byte, so this also bounds the reservation.
  if (count > remaining()) {
    return Corrupt(start + 4, fmt::format("the array length is {} but the file of {} bytes has "
                                          "only {} left. It is truncated or damaged; get it again",
                                          count, bytes_.size(), remaining()));
  }
  array_elements_ += count;
  if (array_elements_ > kMaxArrayElements) {
    return Unsupported(start + 4, fmt::format("the metadata arrays have more than {} elements",
                                              kMaxArrayElements));
  }
  switch (type) {
    case kUint8:
      return ParseNumbers<uint8_t, uint64_t>(count, value);
    case kInt8:
      return ParseNumbers<int8_t, int64_t>(count, value);
    case kUint16:
      return ParseNumbers<uint16_t, uint64_t>(count, value);
    case kInt16:
      return ParseNumbers<int16_t, int64_t>(count, value);
    case kUint32:
      return ParseNumbers<uint32_t, uint64_t>(count, value);
    case kInt32:
      return ParseNumbers<int32_t, int64_t>(count, value);
    case kFloat32:
      return ParseNumbers<float, double>(count, value);
    case kUint64:
      return ParseNumbers<uint64_t, uint64_t>(count, value);
    case kInt64:
      return ParseNumbers<int64_t, int64_t>(count, value);
    case kFloat64:
      return ParseNumbers<double, double>(count, value);
    case kBool:
      return ParseNumbers<uint8_t, bool>(count, value);
    case kArray:
      return Unsupported(start, "an array of arrays is not supported");
    case kString: {
      GgufStringArray texts;
      texts.reserve(std::min(count, remaining() / sizeof(uint64_t)));
      for (uint64_t i = 0; i < count; ++i) {
        std::string_view text;
        SPILLWAY_RETURN_IF_ERROR(ReadString("array element", kMaxStringBytes, &text));
        texts.push_back(text);
      }
      *value = std::move(texts);
      return OkStatus();
    }
    default:
      return Corrupt(start, fmt::format("the array element type is {}, expected 0 to 12", type));
  }
}

Status GgufParser::ReadAlignment() {
  if (!file_.Has("general.alignment")) return OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(file_.alignment_, file_.GetUint("general.alignment"));
  const uint64_t alignment = file_.alignment_;
  if (alignment < kMinAlignment || alignment > kMaxAlignment ||
      (alignment & (alignment - 1)) != 0) {
    return CorruptDataError(fmt::format(
        "{}: metadata \"general.alignment\" is {}, expected a power of two from {} to {}",
        file_.path(), alignment, kMinAlignment, kMaxAlignment));
  }
  return OkStatus();
}

Status GgufParser::ReadDims(std::vector<uint64_t>* dims) {
  uint64_t start = position_;
  uint32_t rank = 0;
  SPILLWAY_RETURN_IF_ERROR(Read("number of dimensions", &rank));
  if (rank == 0 || rank > kMaxDims) {
    return Corrupt(start,
                   fmt::format("the tensor has {} dimensions, expected 1 to {}", rank, kMaxDims));
  }
  start = position_;
  dims->resize(rank);
  uint64_t elements = 1;
  for (uint64_t& dim : *dims) {
    SPILLWAY_RETURN_IF_ERROR(Read("dimension", &dim));
    if (dim == 0) return Corrupt(position_ - 8, "a dimension of the tensor is zero");
    if (__builtin_mul_overflow(elements, dim, &elements) ||
        elements > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Corrupt(start, "the dimensions' product is more than 2^63 elements");
    }
  }
  return OkStatus();
}

Status GgufParser::ParseTensor(uint64_t index) {
  section_ = fmt::format("tensor entry {} of {}", index + 1, tensor_count_);
  const uint64_t start = position_;
  std::string_view name;
  SPILLWAY_RETURN_IF_ERROR(ReadName("name", &name));
  section_ += " " + Quote(name);
  GgufTensor tensor;
  tensor.name = name;
  if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
    return Corrupt(start, "the tensor name appears twice");
  }
  SPILLWAY_RETURN_IF_ERROR(ReadDims(&tensor.dims));
  const uint64_t type_position = position_;
  uint32_t type = 0;
  SPILLWAY_RETURN_IF_ERROR(Read("tensor type", &type));
  tensor.type = static_cast<GgufType>(type);
  if (FindType(tensor.type) == nullptr) {
    return Unsupported(type_position,
                       fmt::format("tensor type {} ({}) is not supported; supported are {}", type,
                                   NameOfTypeNumber(type), SupportedTypes()));
  }
  const uint64_t offset_position = position_;
  // Relative to the data until PlaceTensors.
  SPILLWAY_RETURN_IF_ERROR(Read("data offset", &tensor.file_offset));
  if (tensor.file_offset % file_.alignment_ != 0) {
    return Corrupt(offset_position, fmt::format("the data offset {} is not a multiple of the "
                                                "alignment, {}",
                                                tensor.file_offset, file_.alignment_));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckSize(type_position, tensor));
  file_.tensors_.push_back(std::move(tensor));
  return OkStatus();
}

Status GgufParser::CheckSize(uint64_t position, const GgufTensor& tensor) const {
  const GgufBlock block = GgufBlockOf(tensor.type);
  if (tensor.cols() % block.elements != 0) {
    return Corrupt(position, fmt::format("the tensor has rows of {} elements, but type {} has "
                                         "blocks of {}",
                                         tensor.cols(), GgufTypeName(tensor.type), block.elements));
  }
  uint64_t size = tensor.cols() / block.elements * tensor.rows();
  if (__builtin_mul_overflow(size, uint64_t{block.bytes}, &size) || size > bytes_.size()) {
    return Corrupt(position,
                   fmt::format("a tensor {} of type {} does not fit in a file of {} "
                               "bytes. It is truncated or damaged; get it again",
                               DimsText(tensor.dims), GgufTypeName(tensor.type), bytes_.size()));
  }
  return OkStatus();
}

Status GgufParser::PlaceTensors() {
  section_ = "tensor data";
  const uint64_t base = (position_ + file_.alignment_ - 1) & ~(file_.alignment_ - 1);
  const uint64_t available = base < bytes_.size() ? bytes_.size() - base : 0;
  for (GgufTensor& tensor : file_.tensors_) {
    const GgufBlock block = GgufBlockOf(tensor.type);
    const uint64_t size = tensor.cols() / block.elements * tensor.rows() * block.bytes;
    const uint64_t offset = tensor.file_offset;
    if (offset > available || size > available - offset) {
      return Corrupt(base, fmt::format("tensor {} needs {} bytes at offset {} but the file of {} "
                                       "bytes has {} bytes of data. It is truncated or damaged; "
                                       "get it again",
                                       Quote(tensor.name), size, offset, bytes_.size(), available));
    }
    tensor.file_offset = base + offset;
    tensor.data = bytes_.subspan(tensor.file_offset, size);
  }
  return OkStatus();
}

Status GgufParser::CheckOverlaps() const {
  std::vector<const GgufTensor*> order;
  order.reserve(file_.tensors_.size());
  for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& first = *order[i - 1];
    const GgufTensor& second = *order[i];
    if (first.file_offset + first.data.size() > second.file_offset) {
      return Corrupt(second.file_offset,
                     fmt::format("tensors {} ({} bytes at byte {}) and {} (at byte {}) overlap",
                                 Quote(first.name), first.data.size(), first.file_offset,
                                 Quote(second.name), second.file_offset));
    }
  }
  return OkStatus();
}

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->mapping_ = std::move(mapping);
  SPILLWAY_RETURN_IF_ERROR(GgufParser(file.get()).Parse());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

namespace {

constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kValueNames = {
    "a boolean",
    "an unsigned integer",
    "a signed integer",
    "a floating-point number",
    "a string",
    "an array of booleans",
    "an array of unsigned integers",
    "an array of signed integers",
    "an array of floating-point numbers",
    "an array of strings",
};

Status WrongType(const GgufFile& file, std::string_view key, const GgufValue& value,
                 std::string_view expected) {
  return CorruptDataError(fmt::format("{}: metadata {} is {}, expected {}", file.path(), Quote(key),
                                      kValueNames[value.index()], expected));
}

Status OutOfRange(const GgufFile& file, std::string_view key, const std::string& value,
                  std::string_view expected) {
  return CorruptDataError(fmt::format("{}: metadata {} has the value {}, expected {}", file.path(),
                                      Quote(key), value, expected));
}

Result<const GgufValue*> FindValue(const GgufFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    return NotFoundError(fmt::format("{}: metadata {} is missing", file.path(), Quote(key)));
  }
  return &found->second;
}

// The value when it is a T; T must be exactly the stored alternative.
template <typename T>
Result<T> GetExact(const GgufFile& file, std::string_view key, std::string_view expected) {
  SPILLWAY_ASSIGN_OR_RETURN(const GgufValue* value, FindValue(file, key));
  if (const T* exact = std::get_if<T>(value)) return *exact;
  return WrongType(file, key, *value, expected);
}

}  // namespace

bool GgufFile::Has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

Result<uint64_t> GgufFile::GetUint(std::string_view key) const {
  SPILLWAY_ASSIGN_OR_RETURN(const GgufValue* value, FindValue(*this, key));
  if (const auto* number = std::get_if<uint64_t>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) {
    if (*number >= 0) return static_cast<uint64_t>(*number);
    return OutOfRange(*this, key, std::to_string(*number), "zero or more");
  }
  return WrongType(*this, key, *value, "an integer");
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  SPILLWAY_ASSIGN_OR_RETURN(const GgufValue* value, FindValue(*this, key));
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  return WrongType(*this, key, *value, "a number");
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  return GetExact<bool>(*this, key, "a boolean");
}

Result<std::string> GgufFile::GetString(std::string_view key) const {
  return GetExact<std::string>(*this, key, "a string");
}

Result<GgufStringArray> GgufFile::GetStringArray(std::string_view key) const {
  return GetExact<GgufStringArray>(*this, key, "an array of strings");
}

Result<std::vector<int64_t>> GgufFile::GetIntArray(std::string_view key) const {
  SPILLWAY_ASSIGN_OR_RETURN(const GgufValue* value, FindValue(*this, key));
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(value)) return *numbers;
  const auto* numbers = std::get_if<std::vector<uint64_t>>(value);
  if (numbers == nullptr) return WrongType(*this, key, *value, "an array of integers");
  std::vector<int64_t> converted;
  converted.reserve(numbers->size());
  for (const uint64_t number : *numbers) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return OutOfRange(*this, key, std::to_string(number), "less than 2^63");
    }
    converted.push_back(static_cast<int64_t>(number));
  }
  return converted;
}

Result<std::vector<double>> GgufFile::GetFloatArray(std::string_view key) const {
  SPILLWAY_ASSIGN_OR_RETURN(const GgufValue* value, FindValue(*this, key));
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) return *numbers;
  if (const auto* numbers = std::get_if<std::vector<uint64_t>>(value)) {
    return std::vector<double>(numbers->begin(), numbers->end());
  }
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(value)) {
    return std::vector<double>(numbers->begin(), numbers->end());
  }
  return WrongType(*this, key, *value, "an array of numbers");
}

}  // namespace spillway
