// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/export.h"

namespace cudaexec {

using Sha256Digest = std::array<uint8_t, 32>;

/// Digest of bytes that come in parts. One object belongs to one thread.
class CUDAEXEC_API Sha256 {
 public:
  /// @param portable use no special instructions even where there are some (tests compare the two).
  explicit Sha256(bool portable = false) noexcept;
  void update(std::span<const std::byte> data) noexcept;
  /// Ends the digest; the object takes no more data.
  [[nodiscard]] Sha256Digest finish() noexcept;

 private:
  using Compress = void (*)(uint32_t* state, const std::byte* blocks, size_t count) noexcept;

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> pending_;
  size_t num_pending_ = 0;
  uint64_t nbytes_ = 0;
};

/// One-shot; uses the processor's SHA instructions where there are any. Thread-safe.
CUDAEXEC_API Sha256Digest sha256(std::span<const std::byte> data) noexcept;
/// The same as 64 lower-case hexadecimal digits.
CUDAEXEC_API std::string sha256_hex(std::span<const std::byte> data);

/// Whether the SHA instructions are used.
CUDAEXEC_API bool sha256_is_accelerated() noexcept;

}  // namespace cudaexec
