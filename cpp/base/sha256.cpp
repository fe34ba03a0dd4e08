#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace cudaexec {
namespace {

constexpr size_t kBlock = 64;

constexpr std::array<uint32_t, 8> kInitial{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

alignas(16) constexpr std::array<uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const std::byte* data) noexcept {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return __builtin_bswap32(value);
}

void compress_portable(uint32_t* state, const std::byte* blocks, size_t count) noexcept {
  for (; count > 0; --count, blocks += kBlock) {
    uint32_t w[64];
    for (size_t t = 0; t < 16; ++t) w[t] = load_big_endian(blocks + 4 * t);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t choice = (e & f) ^ (~e & g);
      const uint32_t t1 = h + s1 + choice + kRound[t] + w[t];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> sum{a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sum[i];
  }
}

#if defined(__x86_64__)

bool has_sha_instructions() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSsse3 = 1u << 9, kSse41 = 1u << 19, kSha = 1u << 29;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSsse3) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

// The instructions keep the state as two registers, (a,b,e,f) and (c,d,g,h), highest lane first,
// and do two rounds each; four message words live in each of w[0..3].
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha(uint32_t* state,
                                                              const std::byte* blocks,
                                                              size_t count) noexcept {
  const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto word = [state](size_t i) { return static_cast<int>(state[i]); };
  __m128i abef = _mm_set_epi32(word(0), word(1), word(4), word(5));
  __m128i cdgh = _mm_set_epi32(word(2), word(3), word(6), word(7));
  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      if (i < 4) {
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)),
                                byte_order);
      } else {
        const __m128i previous = w[(i + 3) % 4];
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
                                          _mm_alignr_epi8(previous, w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(sum, previous);
      }
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound.data() + 4 * i));
      const __m128i wk = _mm_add_epi32(w[i % 4], k);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  alignas(16) uint32_t high[4], low[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(high), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(low), cdgh);
  state[0] = high[3], state[1] = high[2], state[4] = high[1], state[5] = high[0];
  state[2] = low[3], state[3] = low[2], state[6] = low[1], state[7] = low[0];
}

#endif

}  // namespace

bool sha256_is_accelerated() noexcept {
#if defined(__x86_64__)
  static const bool accelerated = has_sha_instructions();
  return accelerated;
#else
  return false;
#endif
}

Sha256::Sha256(bool portable) noexcept : compress_(compress_portable), state_(kInitial) {
#if defined(__x86_64__)
  if (!portable && sha256_is_accelerated()) compress_ = compress_sha;
#else
  (void)portable;
#endif
}

void Sha256::update(std::span<const std::byte> data) noexcept {
  if (data.empty()) return;
  nbytes_ += data.size();
  if (num_pending_ > 0) {
    const size_t taken = std::min(kBlock - num_pending_, data.size());
    std::memcpy(pending_.data() + num_pending_, data.data(), taken);
    num_pending_ += taken;
    data = data.subspan(taken);
    if (num_pending_ < kBlock) return;
    compress_(state_.data(), pending_.data(), 1);
    num_pending_ = 0;
  }
  const size_t blocks = data.size() / kBlock;
  compress_(state_.data(), data.data(), blocks);
  const auto rest = data.subspan(blocks * kBlock);
  if (!rest.empty()) std::memcpy(pending_.data(), rest.data(), rest.size());
  num_pending_ = rest.size();
}

Sha256Digest Sha256::finish() noexcept {
  std::array<std::byte, 2 * kBlock> tail{};
  std::memcpy(tail.data(), pending_.data(), num_pending_);
  tail[num_pending_] = std::byte{0x80};
  const size_t blocks = num_pending_ + 9 <= kBlock ? 1 : 2;
  const uint64_t bits = __builtin_bswap64(nbytes_ * 8);
  std::memcpy(tail.data() + blocks * kBlock - sizeof(bits), &bits, sizeof(bits));
  compress_(state_.data(), tail.data(), blocks);
  Sha256Digest digest;
  for (size_t i = 0; i < 8; ++i) {
    const uint32_t word = __builtin_bswap32(state_[i]);
    std::memcpy(digest.data() + 4 * i, &word, sizeof(word));
  }
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> data) noexcept {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

std::string sha256_hex(std::span<const std::byte> data) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : sha256(data)) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace cudaexec
