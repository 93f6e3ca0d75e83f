// Fields of a JSON object, written and read by one description:
//
//   template <typename Fields> void Describe(Fields& fields, Thing& thing) {
//     fields.Text("name", thing.name, {1, 64});
//     fields.Number("count", thing.count, {0, 100});
//   }
//
// FieldWriter puts the values into an object in that order; FieldReader checks
// type and range and sets them. The first thing that is wrong goes to the
// reader's Status (kCorruptData: field, found, expected); what follows is
// skipped. Inside the package layer only.

#ifndef SPILLWAY_PACKAGE_JSON_FIELDS_H_
#define SPILLWAY_PACKAGE_JSON_FIELDS_H_

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/status.h"

namespace spillway {

struct IntRange {
  uint64_t min, max;
};
struct RealRange {
  float min, max;
};
// A value of an enumeration and its name in the file.
template <typename T>
using Named = std::pair<std::string_view, T>;

class FieldWriter {
 public:
  explicit FieldWriter(nlohmann::ordered_json& object) : object_(object) {}

  void Text(std::string_view key, const std::string& value, IntRange length);
  void FileName(std::string_view key, const std::string& value, bool may_be_empty);
  void Hash(std::string_view key, const std::string& value, bool may_be_empty);
  void Number(std::string_view key, uint64_t value, IntRange range);
  // Always written; a reader keeps the value it has when there is none.
  void OptionalNumber(std::string_view key, uint64_t value, IntRange range) {
    Number(key, value, range);
  }
  void Real(std::string_view key, float value, RealRange range);
  void Numbers(std::string_view key, const std::vector<uint32_t>& values, IntRange range,
               size_t max_count);
  void Reals(std::string_view key, const std::vector<float>& values, RealRange range,
             size_t max_count);
  void Bool(std::string_view key, bool value);
  // The text of one JSON object; null when it is empty.
  void JsonText(std::string_view key, const std::string& text);

  template <typename T, size_t kCount>
  void Choice(std::string_view key, T value, const std::array<Named<T>, kCount>& names) {
    Text(key, NameOf(value, names), {0, 0});
  }
  template <typename T, size_t kCount>
  void Choices(std::string_view key, const std::vector<T>& values,
               const std::array<Named<T>, kCount>& names, size_t /*max_count*/) {
    std::vector<std::string> texts;
    for (const T value : values) texts.push_back(NameOf(value, names));
    Texts(key, texts);
  }
  template <typename Body>
  void Object(std::string_view key, const Body& body) {
    FieldWriter child(Child(key));
    body(child);
  }
  // Left out when there is no value.
  template <typename T, typename Body>
  void Optional(std::string_view key, std::optional<T>& value, const Body& body) {
    if (!value.has_value()) return;
    Object(key, [&](FieldWriter& child) { body(child, *value); });
  }
  template <typename T, typename Body>
  void List(std::string_view key, std::vector<T>& items, size_t /*max_count*/, const Body& body) {
    StartList(key);
    for (T& item : items) {
      FieldWriter child(Append(key));
      body(child, item);
    }
  }

 private:
  template <typename T, size_t kCount>
  static std::string NameOf(T value, const std::array<Named<T>, kCount>& names) {
    for (const auto& [name, known] : names) {
      if (known == value) return std::string(name);
    }
    return "";
  }
  void Texts(std::string_view key, const std::vector<std::string>& values);
  nlohmann::ordered_json& Child(std::string_view key);
  void StartList(std::string_view key);
  nlohmann::ordered_json& Append(std::string_view key);

  nlohmann::ordered_json& object_;
};

class FieldReader {
 public:
  // `where` is put before the names of fields ("model.config."). `status` and
  // `object` must outlive the reader.
  FieldReader(const nlohmann::json& object, std::string where, Status& status)
      : object_(object), where_(std::move(where)), status_(status) {}

  void Text(std::string_view key, std::string& value, IntRange length);
  void FileName(std::string_view key, std::string& value, bool may_be_empty);
  void Hash(std::string_view key, std::string& value, bool may_be_empty);
  template <typename T>
  void Number(std::string_view key, T& value, IntRange range) {
    uint64_t number = 0;
    if (ReadNumber(key, number, range)) value = static_cast<T>(number);
  }
  template <typename T>
  void OptionalNumber(std::string_view key, T& value, IntRange range) {
    if (Has(key)) Number(key, value, range);
  }
  void Real(std::string_view key, float& value, RealRange range);
  void Numbers(std::string_view key, std::vector<uint32_t>& values, IntRange range,
               size_t max_count);
  void Reals(std::string_view key, std::vector<float>& values, RealRange range, size_t max_count);
  void Bool(std::string_view key, bool& value);
  void JsonText(std::string_view key, std::string& text);

  template <typename T, size_t kCount>
  void Choice(std::string_view key, T& value, const std::array<Named<T>, kCount>& names) {
    std::vector<std::string> texts;
    if (ReadTexts(key, texts, false, 1)) Choose(key, texts[0], value, names);
  }
  template <typename T, size_t kCount>
  void Choices(std::string_view key, std::vector<T>& values,
               const std::array<Named<T>, kCount>& names, size_t max_count) {
    std::vector<std::string> texts;
    if (!ReadTexts(key, texts, true, max_count)) return;
    values.resize(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) Choose(key, texts[i], values[i], names);
  }
  template <typename Body>
  void Object(std::string_view key, const Body& body) {
    const nlohmann::json* child = FindObject(key);
    if (child == nullptr) return;
    FieldReader reader(*child, where_ + std::string(key) + ".", status_);
    body(reader);
  }
  template <typename T, typename Body>
  void Optional(std::string_view key, std::optional<T>& value, const Body& body) {
    if (!Has(key)) return;
    Object(key, [&](FieldReader& child) { body(child, value.emplace()); });
  }
  template <typename T, typename Body>
  void List(std::string_view key, std::vector<T>& items, size_t max_count, const Body& body) {
    const size_t count = ListSize(key, max_count);
    items.assign(count, T());
    for (size_t i = 0; i < count; ++i) {
      const nlohmann::json* child = ListItem(key, i);
      if (child == nullptr) return;
      FieldReader reader(*child, where_ + std::string(key) + "[" + std::to_string(i) + "].",
                         status_);
      body(reader, items[i]);
    }
  }
  // Reports that a field's value does not go with the others.
  void Fail(std::string_view key, std::string_view found, std::string_view expected);
  bool ok() const { return status_.ok(); }

 private:
  template <typename T, size_t kCount>
  void Choose(std::string_view key, const std::string& text, T& value,
              const std::array<Named<T>, kCount>& names) {
    std::string expected;
    for (const auto& [name, known] : names) {
      if (name == text) {
        value = known;
        return;
      }
      expected += (expected.empty() ? "one of " : ", ") + std::string(name);
    }
    Fail(key, text, expected);
  }
  bool Has(std::string_view key) const;
  // The field, or nullptr after reporting that it is missing.
  const nlohmann::json* Find(std::string_view key);
  const nlohmann::json* FindObject(std::string_view key);
  size_t ListSize(std::string_view key, size_t max_count);
  const nlohmann::json* ListItem(std::string_view key, size_t index);
  bool ReadNumber(std::string_view key, uint64_t& value, IntRange range);
  // One string, or a list of strings.
  bool ReadTexts(std::string_view key, std::vector<std::string>& texts, bool is_list,
                 size_t max_count);
  bool ToReal(std::string_view key, const nlohmann::json& value, RealRange range, float& real);
  void FailAt(std::string_view key, const nlohmann::json& found, std::string_view expected);

  const nlohmann::json& object_;
  std::string where_;
  Status& status_;
};

// A name that stays inside a folder: no slash, not "." or "..", printable.
bool IsPlainFileName(std::string_view name);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_JSON_FIELDS_H_
