#include "base/tree_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 takes the deliberately undefined registers of its own AVX-512 header for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// XXH3-128 with seed 0 and the default secret, after the public description of the algorithm.
namespace cudaexec {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

constexpr uint32_t kPrime32A = 0x9E3779B1, kPrime32B = 0x85EBCA77, kPrime32C = 0xC2B2AE3D;
constexpr uint64_t kPrime64A = 0x9E3779B185EBCA87, kPrime64B = 0xC2B2AE3D27D4EB4F,
                   kPrime64C = 0x165667B19E3779F9, kPrime64D = 0x85EBCA77C2B2AE63,
                   kPrime64E = 0x27D4EB2F165667C5;
constexpr uint64_t kMixA = 0x165667919E3779F9, kMixB = 0x9FB21C651E98DF25;

constexpr size_t kSecretBytes = 192;
alignas(64) constexpr std::array<uint8_t, kSecretBytes> kSecret{
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

constexpr size_t kStripe = 64;
constexpr size_t kSecretStep = 8;
constexpr size_t kStripesPerBlock = (kSecretBytes - kStripe) / kSecretStep;
constexpr size_t kBlock = kStripe * kStripesPerBlock;

using Bytes = const std::byte*;

uint32_t read32(const void* p) noexcept {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
uint64_t read64(const void* p) noexcept {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
uint64_t secret64(size_t offset) noexcept { return read64(kSecret.data() + offset); }
uint32_t secret32(size_t offset) noexcept { return read32(kSecret.data() + offset); }

Hash128 multiply(uint64_t a, uint64_t b) noexcept {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return {static_cast<uint64_t>(product), static_cast<uint64_t>(product >> 64)};
}
uint64_t multiply_fold(uint64_t a, uint64_t b) noexcept {
  const Hash128 product = multiply(a, b);
  return product.low ^ product.high;
}
uint64_t avalanche(uint64_t h) noexcept {
  h ^= h >> 37;
  h *= kMixA;
  return h ^ (h >> 32);
}
uint64_t avalanche64(uint64_t h) noexcept {
  h ^= h >> 33;
  h *= kPrime64B;
  h ^= h >> 29;
  h *= kPrime64C;
  return h ^ (h >> 32);
}

Hash128 hash_0_to_3(Bytes in, size_t n) noexcept {
  if (n == 0)
    return {avalanche64(secret64(64) ^ secret64(72)), avalanche64(secret64(80) ^ secret64(88))};
  const auto byte = [in](size_t i) { return static_cast<uint32_t>(in[i]); };
  const uint32_t low =
      byte(0) << 16 | byte(n >> 1) << 24 | byte(n - 1) | static_cast<uint32_t>(n) << 8;
  const uint32_t high = std::rotl(__builtin_bswap32(low), 13);
  return {avalanche64(low ^ (secret32(0) ^ secret32(4))),
          avalanche64(high ^ (secret32(8) ^ secret32(12)))};
}

Hash128 hash_4_to_8(Bytes in, size_t n) noexcept {
  const uint64_t word = read32(in) | static_cast<uint64_t>(read32(in + n - 4)) << 32;
  const uint64_t keyed = word ^ (secret64(16) ^ secret64(24));
  Hash128 m = multiply(keyed, kPrime64A + (n << 2));
  m.high += m.low << 1;
  m.low ^= m.high >> 3;
  m.low ^= m.low >> 35;
  m.low *= kMixB;
  m.low ^= m.low >> 28;
  m.high = avalanche(m.high);
  return m;
}

Hash128 hash_9_to_16(Bytes in, size_t n) noexcept {
  const uint64_t first = read64(in);
  uint64_t last = read64(in + n - 8);
  Hash128 m = multiply(first ^ last ^ (secret64(32) ^ secret64(40)), kPrime64A);
  m.low += static_cast<uint64_t>(n - 1) << 54;
  last ^= secret64(48) ^ secret64(56);
  m.high += last + (last & 0xFFFFFFFF) * (kPrime32B - 1);
  m.low ^= __builtin_bswap64(m.high);
  Hash128 h = multiply(m.low, kPrime64B);
  h.high += m.high * kPrime64B;
  return {avalanche(h.low), avalanche(h.high)};
}

uint64_t mix16(Bytes in, size_t secret) noexcept {
  return multiply_fold(read64(in) ^ secret64(secret), read64(in + 8) ^ secret64(secret + 8));
}

void mix32(Hash128& acc, Bytes a, Bytes b, size_t secret) noexcept {
  acc.low += mix16(a, secret);
  acc.low ^= read64(b) + read64(b + 8);
  acc.high += mix16(b, secret + 16);
  acc.high ^= read64(a) + read64(a + 8);
}

Hash128 finish_mid(const Hash128& acc, size_t n) noexcept {
  const uint64_t high = acc.low * kPrime64A + acc.high * kPrime64D + n * kPrime64B;
  return {avalanche(acc.low + acc.high), 0 - avalanche(high)};
}

Hash128 hash_17_to_128(Bytes in, size_t n) noexcept {
  Hash128 acc{n * kPrime64A, 0};
  for (size_t pairs = (n - 1) / 32 + 1; pairs-- > 0;)
    mix32(acc, in + 16 * pairs, in + n - 16 * (pairs + 1), 32 * pairs);
  return finish_mid(acc, n);
}

Hash128 hash_129_to_240(Bytes in, size_t n) noexcept {
  Hash128 acc{n * kPrime64A, 0};
  size_t i = 0;
  for (; i < 128; i += 32) mix32(acc, in + i, in + i + 16, i);
  acc = {avalanche(acc.low), avalanche(acc.high)};
  for (; i + 32 <= n; i += 32) mix32(acc, in + i, in + i + 16, 3 + i - 128);
  mix32(acc, in + n - 16, in + n - 32, 136 - 17 - 16);
  return finish_mid(acc, n);
}

/// Eight accumulators over stripes of 64 bytes; one implementation per instruction set.
struct Portable {
  static void stripes(uint64_t* acc, Bytes in, const uint8_t* secret, size_t count) noexcept {
    for (; count > 0; --count, in += kStripe, secret += kSecretStep) {
      for (size_t i = 0; i < 8; ++i) {
        const uint64_t value = read64(in + 8 * i);
        const uint64_t key = value ^ read64(secret + 8 * i);
        acc[i ^ 1] += value;
        acc[i] += (key & 0xFFFFFFFF) * (key >> 32);
      }
    }
  }
  static void blocks(uint64_t* acc, Bytes in, size_t count) noexcept {
    for (; count > 0; --count, in += kBlock) {
      stripes(acc, in, kSecret.data(), kStripesPerBlock);
      for (size_t i = 0; i < 8; ++i) {
        const uint64_t mixed = acc[i] ^ (acc[i] >> 47) ^ secret64(kSecretBytes - kStripe + 8 * i);
        acc[i] = mixed * kPrime32A;
      }
    }
  }
};

#if defined(__x86_64__)

// Bytes ahead of the current stripe that are worth asking for.
constexpr size_t kPrefetch = 1024;

struct Avx2 {
  __attribute__((target("avx2"))) static __m256i accumulate(__m256i acc, const std::byte* in,
                                                            const uint8_t* secret) noexcept {
    const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    const __m256i key =
        _mm256_xor_si256(value, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(secret)));
    const __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
    const __m256i swapped = _mm256_shuffle_epi32(value, 0x4E);
    return _mm256_add_epi64(acc, _mm256_add_epi64(product, swapped));
  }
  __attribute__((target("avx2"))) static __m256i scramble(__m256i acc,
                                                          const uint8_t* secret) noexcept {
    const __m256i mixed = _mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47));
    const __m256i key =
        _mm256_xor_si256(mixed, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(secret)));
    const __m256i prime = _mm256_set1_epi64x(kPrime32A);
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(key, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(key, prime), _mm256_slli_epi64(high, 32));
  }
  __attribute__((target("avx2"))) static void stripes(uint64_t* acc, Bytes in,
                                                      const uint8_t* secret,
                                                      size_t count) noexcept {
    auto* lanes = reinterpret_cast<__m256i*>(acc);
    __m256i a = _mm256_loadu_si256(lanes);
    __m256i b = _mm256_loadu_si256(lanes + 1);
    for (; count > 0; --count, in += kStripe, secret += kSecretStep) {
      a = accumulate(a, in, secret);
      b = accumulate(b, in + 32, secret + 32);
    }
    _mm256_storeu_si256(lanes, a);
    _mm256_storeu_si256(lanes + 1, b);
  }
  __attribute__((target("avx2"))) static void blocks(uint64_t* acc, Bytes in,
                                                     size_t count) noexcept {
    auto* lanes = reinterpret_cast<__m256i*>(acc);
    __m256i a = _mm256_loadu_si256(lanes);
    __m256i b = _mm256_loadu_si256(lanes + 1);
    for (; count > 0; --count) {
#pragma GCC unroll 16
      for (size_t s = 0; s < kStripesPerBlock; ++s, in += kStripe) {
        _mm_prefetch(reinterpret_cast<const char*>(in) + kPrefetch, _MM_HINT_T0);
        a = accumulate(a, in, kSecret.data() + s * kSecretStep);
        b = accumulate(b, in + 32, kSecret.data() + s * kSecretStep + 32);
      }
      a = scramble(a, kSecret.data() + kSecretBytes - kStripe);
      b = scramble(b, kSecret.data() + kSecretBytes - kStripe + 32);
    }
    _mm256_storeu_si256(lanes, a);
    _mm256_storeu_si256(lanes + 1, b);
  }
};

struct Avx512 {
  __attribute__((target("avx512f"))) static __m512i accumulate(__m512i acc, const std::byte* in,
                                                               const uint8_t* secret) noexcept {
    const __m512i value = _mm512_loadu_si512(in);
    const __m512i key = _mm512_xor_si512(value, _mm512_loadu_si512(secret));
    const __m512i product = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));
    const __m512i swapped = _mm512_shuffle_epi32(value, static_cast<_MM_PERM_ENUM>(0x4E));
    return _mm512_add_epi64(acc, _mm512_add_epi64(product, swapped));
  }
  __attribute__((target("avx512f"))) static void stripes(uint64_t* acc, Bytes in,
                                                         const uint8_t* secret,
                                                         size_t count) noexcept {
    __m512i a = _mm512_loadu_si512(acc);
    for (; count > 0; --count, in += kStripe, secret += kSecretStep) a = accumulate(a, in, secret);
    _mm512_storeu_si512(acc, a);
  }
  __attribute__((target("avx512f"))) static void blocks(uint64_t* acc, Bytes in,
                                                        size_t count) noexcept {
    const __m512i prime = _mm512_set1_epi64(kPrime32A);
    const __m512i scramble_key = _mm512_loadu_si512(kSecret.data() + kSecretBytes - kStripe);
    __m512i a = _mm512_loadu_si512(acc);
    for (; count > 0; --count) {
#pragma GCC unroll 16
      for (size_t s = 0; s < kStripesPerBlock; ++s, in += kStripe) {
        _mm_prefetch(reinterpret_cast<const char*>(in) + kPrefetch, _MM_HINT_T0);
        a = accumulate(a, in, kSecret.data() + s * kSecretStep);
      }
      const __m512i mixed = _mm512_xor_si512(a, _mm512_srli_epi64(a, 47));
      const __m512i key = _mm512_xor_si512(mixed, scramble_key);
      const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(key, 32), prime);
      a = _mm512_add_epi64(_mm512_mul_epu32(key, prime), _mm512_slli_epi64(high, 32));
    }
    _mm512_storeu_si512(acc, a);
  }
};

#endif

uint64_t merge(const uint64_t* acc, size_t secret, uint64_t start) noexcept {
  uint64_t result = start;
  for (size_t i = 0; i < 4; ++i)
    result += multiply_fold(acc[2 * i] ^ secret64(secret + 16 * i),
                            acc[2 * i + 1] ^ secret64(secret + 16 * i + 8));
  return avalanche(result);
}

template <typename Path>
Hash128 hash_long(Bytes in, size_t n) noexcept {
  alignas(64) uint64_t acc[8] = {kPrime32C, kPrime64A, kPrime64B, kPrime64C,
                                 kPrime64D, kPrime32B, kPrime64E, kPrime32A};
  const size_t blocks = (n - 1) / kBlock;
  Path::blocks(acc, in, blocks);
  Path::stripes(acc, in + blocks * kBlock, kSecret.data(), (n - 1 - blocks * kBlock) / kStripe);
  Path::stripes(acc, in + n - kStripe, kSecret.data() + kSecretBytes - kStripe - 7, 1);
  return {merge(acc, 11, n * kPrime64A), merge(acc, kSecretBytes - kStripe - 11, ~(n * kPrime64B))};
}

}  // namespace

HashPath best_hash_path() noexcept {
#if defined(__x86_64__)
  static const HashPath best = __builtin_cpu_supports("avx512f") ? HashPath::kAvx512
                               : __builtin_cpu_supports("avx2")  ? HashPath::kAvx2
                                                                 : HashPath::kPortable;
  return best;
#else
  return HashPath::kPortable;
#endif
}

Hash128 xxh3_128(std::span<const std::byte> data, HashPath path) noexcept {
  const Bytes in = data.data();
  const size_t n = data.size();
  if (n <= 3) return hash_0_to_3(in, n);
  if (n <= 8) return hash_4_to_8(in, n);
  if (n <= 16) return hash_9_to_16(in, n);
  if (n <= 128) return hash_17_to_128(in, n);
  if (n <= 240) return hash_129_to_240(in, n);
#if defined(__x86_64__)
  if (path == HashPath::kAvx512) return hash_long<Avx512>(in, n);
  if (path == HashPath::kAvx2) return hash_long<Avx2>(in, n);
#endif
  (void)path;
  return hash_long<Portable>(in, n);
}

Hash128 xxh3_128(std::span<const std::byte> data) noexcept {
  return xxh3_128(data, best_hash_path());
}

std::array<std::byte, 16> canonical_bytes(Hash128 hash) noexcept {
  const std::array<uint64_t, 2> words{__builtin_bswap64(hash.high), __builtin_bswap64(hash.low)};
  return std::bit_cast<std::array<std::byte, 16>>(words);
}

std::string hash_hex(Hash128 hash) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : canonical_bytes(hash)) {
    text += kHex[static_cast<uint8_t>(byte) >> 4];
    text += kHex[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

Hash128 tree_hash_chunk(std::span<const std::byte> data, uint64_t index) noexcept {
  const uint64_t start = index * kTreeHashChunk;
  return xxh3_128(data.subspan(start, std::min<uint64_t>(kTreeHashChunk, data.size() - start)));
}

Hash128 tree_hash_root(std::span<const Hash128> chunks, uint64_t nbytes) {
  std::vector<std::byte> joined;
  joined.reserve(chunks.size() * sizeof(Hash128) + sizeof(nbytes));
  for (const Hash128& chunk : chunks) {
    const auto bytes = canonical_bytes(chunk);
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  const auto length = std::bit_cast<std::array<std::byte, sizeof(nbytes)>>(nbytes);
  joined.insert(joined.end(), length.begin(), length.end());
  return xxh3_128(joined);
}

Hash128 tree_hash(std::span<const std::byte> data) {
  std::vector<Hash128> chunks(tree_hash_chunks(data.size()));
  for (uint64_t i = 0; i < chunks.size(); ++i) chunks[i] = tree_hash_chunk(data, i);
  return tree_hash_root(chunks, data.size());
}

}  // namespace cudaexec
