#include "base/hash.h"

#include <fcntl.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY  // for a state without an allocation of its own
#include <xxhash.h>

// Wider vectors where the processor has them: only for x86, and part of the same package.
#if __has_include(<xxh_x86dispatch.h>) && defined(__x86_64__)
#include <xxh_x86dispatch.h>
#endif

#include <cerrno>
#include <vector>

#include "base/errno_error.h"
#include "base/file_descriptor.h"

namespace spillway {
namespace {

constexpr size_t kFileBlock = 1 << 20;

// The canonical byte order of XXH128, so that other tools print the same.
std::string ToHex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * sizeof(canonical.digest));
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }

Hasher::~Hasher() = default;

void Hasher::Add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

void Hasher::Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }

std::string Hasher::Finish() const { return ToHex(XXH3_128bits_digest(&state_->xxh3)); }

std::string HashBytes(std::span<const std::byte> bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string HashText(std::string_view text) { return HashBytes(std::as_bytes(std::span(text))); }

Result<std::string> HashFile(const std::string& path) {
  // Read in blocks rather than mapped, so that memory stays small and a file
  // that shrinks meanwhile does no harm.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("open '" + path + "'", errno);
  Hasher hasher;
  std::vector<std::byte> block(kFileBlock);
  while (true) {
    const ssize_t got = read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read '" + path + "'", errno);
    if (got == 0) return hasher.Finish();
    hasher.Add(std::span(block).first(static_cast<size_t>(got)));
  }
}

}  // namespace spillway
