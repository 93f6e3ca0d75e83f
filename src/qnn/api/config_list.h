// A list of vendor configurations together with the memory that they point at.

#ifndef SPILLWAY_QNN_API_CONFIG_LIST_H_
#define SPILLWAY_QNN_API_CONFIG_LIST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "qnn/api/abi.h"

namespace spillway::qnn {

// Config is abi::DeviceConfig, abi::ContextConfig, abi::GraphConfig, ... Moving
// keeps all addresses. list() stays valid until the next Add or the end of the
// object.
template <typename Config>
class ConfigList {
 public:
  ConfigList() = default;
  ConfigList(ConfigList&&) noexcept = default;
  ConfigList& operator=(ConfigList&&) noexcept = default;
  ConfigList(const ConfigList&) = delete;
  ConfigList& operator=(const ConfigList&) = delete;

  // A new, zeroed entry; the caller fills it in.
  Config& Add() {
    entries_.push_back(std::make_unique<Config>());
    *entries_.back() = Config{};
    return *entries_.back();
  }

  // A new entry for a backend's own structure `T`, zeroed and followed by zeros:
  // at least 64 bytes, because some releases read more than others.
  template <typename T, typename Option>
  T& AddCustom(Option custom_option) {
    constexpr size_t kWords = (sizeof(T) > 64 ? sizeof(T) + 7 : 64) / 8;
    blocks_.push_back(std::make_unique<uint64_t[]>(kWords));
    void* memory = blocks_.back().get();
    Config& config = Add();
    config.option = custom_option;
    config.custom = memory;
    return *new (memory) T{};
  }

  // A copy of `text` that lives as long as the list.
  const char* KeepText(const std::string& text) {
    texts_.push_back(std::make_unique<std::string>(text));
    return texts_.back()->c_str();
  }

  // Null-terminated; never null itself.
  const Config** list() {
    pointers_.clear();
    for (const auto& entry : entries_) pointers_.push_back(entry.get());
    pointers_.push_back(nullptr);
    return pointers_.data();
  }

  size_t size() const { return entries_.size(); }
  const Config& entry(size_t index) const { return *entries_[index]; }

 private:
  std::vector<std::unique_ptr<Config>> entries_;
  std::vector<std::unique_ptr<uint64_t[]>> blocks_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<const Config*> pointers_;
};

using DeviceConfigs = ConfigList<abi::DeviceConfig>;
using ContextConfigs = ConfigList<abi::ContextConfig>;
using GraphConfigs = ConfigList<abi::GraphConfig>;

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_CONFIG_LIST_H_
