#include "package/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxShown = 60;

// The shortest decimal number that reads back as `value`: 1e-05 rather than
// the float's exact value.
double ShortReal(float value) {
  const double shortest = std::strtod(fmt::format("{}", value).c_str(), nullptr);
  return static_cast<float>(shortest) == value ? shortest : static_cast<double>(value);
}

bool IsHash(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  for (const char c : name) {
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

void FieldWriter::Text(std::string_view key, const std::string& value, IntRange /*length*/) {
  object_[std::string(key)] = value;
}

void FieldWriter::FileName(std::string_view key, const std::string& value, bool /*may_be_empty*/) {
  object_[std::string(key)] = value;
}

void FieldWriter::Hash(std::string_view key, const std::string& value, bool /*may_be_empty*/) {
  object_[std::string(key)] = value;
}

void FieldWriter::Number(std::string_view key, uint64_t value, IntRange /*range*/) {
  object_[std::string(key)] = value;
}

void FieldWriter::Real(std::string_view key, float value, RealRange /*range*/) {
  object_[std::string(key)] = ShortReal(value);
}

void FieldWriter::Numbers(std::string_view key, const std::vector<uint32_t>& values,
                          IntRange /*range*/, size_t /*max_count*/) {
  object_[std::string(key)] = values;
}

void FieldWriter::Reals(std::string_view key, const std::vector<float>& values, RealRange /*range*/,
                        size_t /*max_count*/) {
  ordered_json list = ordered_json::array();
  for (const float value : values) list.push_back(ShortReal(value));
  object_[std::string(key)] = std::move(list);
}

void FieldWriter::Bool(std::string_view key, bool value) { object_[std::string(key)] = value; }

void FieldWriter::JsonText(std::string_view key, const std::string& text) {
  ordered_json& field = object_[std::string(key)];
  if (text.empty()) return;  // null
  // Through the sorted kind, so that the order does not depend on the writer.
  // What is no JSON stays text, which a reader refuses.
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) value = text;
  field = value;
}

void FieldWriter::Texts(std::string_view key, const std::vector<std::string>& values) {
  object_[std::string(key)] = values;
}

ordered_json& FieldWriter::Child(std::string_view key) {
  return object_[std::string(key)] = ordered_json::object();
}

void FieldWriter::StartList(std::string_view key) {
  object_[std::string(key)] = ordered_json::array();
}

ordered_json& FieldWriter::Append(std::string_view key) {
  ordered_json& list = object_[std::string(key)];
  list.push_back(ordered_json::object());
  return list.back();
}

void FieldReader::Fail(std::string_view key, std::string_view found, std::string_view expected) {
  if (!status_.ok()) return;
  status_ = CorruptDataError(
      fmt::format("field {}{}: found {}, expected {}", where_, key, found, expected));
}

void FieldReader::FailAt(std::string_view key, const json& found, std::string_view expected) {
  if (status_.ok()) Fail(key, Shown(found), expected);
}

bool FieldReader::Has(std::string_view key) const { return object_.contains(std::string(key)); }

const json* FieldReader::Find(std::string_view key) {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(std::string(key));
  if (found != object_.end()) return &*found;
  status_ = CorruptDataError(fmt::format("field {}{} is missing", where_, key));
  return nullptr;
}

const json* FieldReader::FindObject(std::string_view key) {
  const json* field = Find(key);
  if (field == nullptr || field->is_object()) return field;
  FailAt(key, *field, "an object");
  return nullptr;
}

size_t FieldReader::ListSize(std::string_view key, size_t max_count) {
  const json* field = Find(key);
  if (field == nullptr) return 0;
  if (field->is_array() && field->size() <= max_count) return field->size();
  FailAt(key, *field, fmt::format("a list of at most {} items", max_count));
  return 0;
}

const json* FieldReader::ListItem(std::string_view key, size_t index) {
  const json* field = Find(key);
  if (field == nullptr) return nullptr;
  const json& item = (*field)[index];
  if (item.is_object()) return &item;
  FailAt(key, item, "objects");
  return nullptr;
}

bool FieldReader::ReadNumber(std::string_view key, uint64_t& value, IntRange range) {
  const json* field = Find(key);
  if (field == nullptr) return false;
  if (field->is_number_unsigned()) {
    value = field->get<uint64_t>();
    if (value >= range.min && value <= range.max) return true;
  }
  FailAt(key, *field, fmt::format("a whole number from {} to {}", range.min, range.max));
  return false;
}

bool FieldReader::ReadTexts(std::string_view key, std::vector<std::string>& texts, bool is_list,
                            size_t max_count) {
  const json* field = Find(key);
  if (field == nullptr) return false;
  if (!is_list && field->is_string()) {
    texts.push_back(field->get<std::string>());
    return true;
  }
  bool fits = is_list && field->is_array() && field->size() <= max_count;
  for (size_t i = 0; fits && i < field->size(); ++i) {
    fits = (*field)[i].is_string();
    if (fits) texts.push_back((*field)[i].get<std::string>());
  }
  if (!fits) {
    FailAt(
        key, *field,
        is_list ? fmt::format("a list of at most {} strings", max_count) : std::string("a string"));
  }
  return fits;
}

void FieldReader::Text(std::string_view key, std::string& value, IntRange length) {
  const json* field = Find(key);
  if (field == nullptr) return;
  if (field->is_string()) {
    value = field->get<std::string>();
    if (value.size() >= length.min && value.size() <= length.max) return;
  }
  FailAt(key, *field, fmt::format("a string of {} to {} bytes", length.min, length.max));
}

void FieldReader::FileName(std::string_view key, std::string& value, bool may_be_empty) {
  const json* field = Find(key);
  if (field == nullptr) return;
  if (field->is_string()) {
    value = field->get<std::string>();
    if (IsPlainFileName(value) || (may_be_empty && value.empty())) return;
  }
  FailAt(key, *field, "the name of a file in the package, without a path");
}

void FieldReader::Hash(std::string_view key, std::string& value, bool may_be_empty) {
  const json* field = Find(key);
  if (field == nullptr) return;
  if (field->is_string()) {
    value = field->get<std::string>();
    if (IsHash(value) || (may_be_empty && value.empty())) return;
  }
  FailAt(key, *field, "32 lower-case hexadecimal digits");
}

bool FieldReader::ToReal(std::string_view key, const json& value, RealRange range, float& real) {
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= range.min && number <= range.max) {
      real = static_cast<float>(number);
      return true;
    }
  }
  FailAt(key, value, fmt::format("a number from {} to {}", range.min, range.max));
  return false;
}

void FieldReader::Real(std::string_view key, float& value, RealRange range) {
  const json* field = Find(key);
  if (field != nullptr) ToReal(key, *field, range, value);
}

void FieldReader::Numbers(std::string_view key, std::vector<uint32_t>& values, IntRange range,
                          size_t max_count) {
  const size_t count = ListSize(key, max_count);
  const json* field = Find(key);
  values.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    const json& item = (*field)[i];
    if (!item.is_number_unsigned() || item.get<uint64_t>() < range.min ||
        item.get<uint64_t>() > range.max) {
      return FailAt(key, item, fmt::format("whole numbers from {} to {}", range.min, range.max));
    }
    values[i] = item.get<uint32_t>();
  }
}

void FieldReader::Reals(std::string_view key, std::vector<float>& values, RealRange range,
                        size_t max_count) {
  const size_t count = ListSize(key, max_count);
  const json* field = Find(key);
  values.assign(count, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    if (!ToReal(key, (*field)[i], range, values[i])) return;
  }
}

void FieldReader::Bool(std::string_view key, bool& value) {
  const json* field = Find(key);
  if (field == nullptr) return;
  if (field->is_boolean()) {
    value = field->get<bool>();
  } else {
    FailAt(key, *field, "true or false");
  }
}

void FieldReader::JsonText(std::string_view key, std::string& text) {
  const json* field = Find(key);
  if (field == nullptr || field->is_null()) return;
  if (field->is_object()) {
    text = field->dump(-1, ' ', false, json::error_handler_t::replace);
  } else {
    FailAt(key, *field, "an object or null");
  }
}

}  // namespace spillway
