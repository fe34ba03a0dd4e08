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

/// One-shot; uses the processor's SHA instructions where there are any. Thread-safe.
CUDAEXEC_API Sha256Digest sha256(std::span<const std::byte> data) noexcept;
/// The same as 64 lower-case hexadecimal digits.
CUDAEXEC_API std::string sha256_hex(std::span<const std::byte> data);

/// Whether the SHA instructions are used.
CUDAEXEC_API bool sha256_is_accelerated() noexcept;
/// The portable path whatever the processor has (tests compare the two).
CUDAEXEC_API Sha256Digest sha256_portable(std::span<const std::byte> data) noexcept;

}  // namespace cudaexec
