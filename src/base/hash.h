// Content hashes (XXH3, 128 bit). They find damage, not malice.

#ifndef SPILLWAY_BASE_HASH_H_
#define SPILLWAY_BASE_HASH_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "spillway/status.h"

namespace spillway {

// 32 lower-case hexadecimal digits.
std::string HashBytes(std::span<const std::byte> bytes);
std::string HashText(std::string_view text);
Result<std::string> HashFile(const std::string& path);

// The hash of what is added piece by piece; equal to HashBytes of the whole.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text);
  // May be followed by more Add().
  std::string Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway

#endif  // SPILLWAY_BASE_HASH_H_
