// XXH3-128 and the tree hash over it (docs/format.md, "Tree hash"): fast digests of weights. They
// find damage and mix-ups; they are no defence against somebody who forges files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/export.h"

namespace cudaexec {

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

/// The vector code that hashing uses.
enum class HashPath : uint8_t { kPortable, kAvx2, kAvx512 };
CUDAEXEC_API HashPath best_hash_path() noexcept;

/// XXH3-128, seed 0, of any length. Thread-safe; no heap.
CUDAEXEC_API Hash128 xxh3_128(std::span<const std::byte> data) noexcept;
/// The same by one path. @pre the processor has it (path <= best_hash_path()).
CUDAEXEC_API Hash128 xxh3_128(std::span<const std::byte> data, HashPath path) noexcept;

/// Canonical form: big-endian, high half first.
CUDAEXEC_API std::array<std::byte, 16> canonical_bytes(Hash128 hash) noexcept;
/// 32 lower-case hexadecimal digits.
CUDAEXEC_API std::string hash_hex(Hash128 hash);

/// Bytes per chunk of the tree hash; the last chunk may be shorter.
inline constexpr uint64_t kTreeHashChunk = uint64_t{1} << 20;
inline constexpr uint64_t tree_hash_chunks(uint64_t nbytes) noexcept {
  return nbytes / kTreeHashChunk + (nbytes % kTreeHashChunk != 0 ? 1 : 0);
}

/// Digest of chunk `index` of `data`; chunks may be hashed in any order by any number of threads.
/// @pre index < tree_hash_chunks(data.size())
CUDAEXEC_API Hash128 tree_hash_chunk(std::span<const std::byte> data, uint64_t index) noexcept;
/// The root over all chunk digests, in order, of a blob of `nbytes` bytes.
CUDAEXEC_API Hash128 tree_hash_root(std::span<const Hash128> chunks, uint64_t nbytes);
/// The whole in the calling thread.
CUDAEXEC_API Hash128 tree_hash(std::span<const std::byte> data);

}  // namespace cudaexec
