// Queries, keys and values as matrix products take them. Operands go from memory into the registers
// that the products want them in, 16 bytes at a time: a product does not mind in which order the
// elements that it sums over come, nor which columns of the result are called which.
#pragma once

#include "kernel.cuh"
#include "kv_cache.cuh"
#include "numbers.cuh"
#include "warp.cuh"

namespace cudaexec::cuda {

#if defined(CUDAEXEC_EMULATION)
inline uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffffu) | b << 16; }
inline uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
/// Two codes of float8 (in the low 16 bits) as two elements of T.
template <typename T>
inline uint32_t widen_codes(uint32_t codes) {
  return pack<T>(widen(Float8{static_cast<uint8_t>(codes)}),
                 widen(Float8{static_cast<uint8_t>(codes >> 8)}));
}
#else
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}
template <typename T>
__device__ __forceinline__ uint32_t widen_codes(uint32_t codes);
/// Exponent and mantissa in their places are too small by a power of two that does not depend on
/// the value, subnormal ones included.
template <>
__device__ __forceinline__ uint32_t widen_codes<Float16>(uint32_t codes) {
  const uint32_t apart = __byte_perm(codes, 0, 0x4140);
  const uint32_t bits = (apart & 0x007f007fu) << 7 | (apart & 0x00800080u) << 8;
  const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&bits), __float2half2_rn(256.0f));
  const uint32_t nan = __vcmpeq2(apart & 0x007f007fu, 0x007f007fu);
  return *reinterpret_cast<const uint32_t*>(&value) | (nan & 0x7fff7fffu);
}
template <>
__device__ __forceinline__ uint32_t widen_codes<Bfloat16>(uint32_t codes) {
  const uint32_t apart = __byte_perm(codes, 0, 0x4140);
  const uint32_t bits = (apart & 0x007f007fu) << 4 | (apart & 0x00800080u) << 8;
  const __nv_bfloat162 value = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                       __float2bfloat162_rn(1.329227995784916e36f));  // 2^120
  const uint32_t nan = __vcmpeq2(apart & 0x007f007fu, 0x007f007fu);
  return *reinterpret_cast<const uint32_t*>(&value) | (nan & 0x7fff7fffu);
}
#endif

/// Eight elements as they are stored, and as the products take them.
template <typename T, typename S>
struct Chunk {
  uint4 raw;
  __device__ __forceinline__ void load(const char* address) {
    raw = *reinterpret_cast<const uint4*>(address);
  }
  __device__ __forceinline__ void clear() { raw = uint4{0, 0, 0, 0}; }
  __device__ __forceinline__ uint4 elements() const { return raw; }
};
template <typename T>
struct Chunk<T, Float8> {
  uint2 raw;
  __device__ __forceinline__ void load(const char* address) {
    raw = *reinterpret_cast<const uint2*>(address);
  }
  __device__ __forceinline__ void clear() { raw = uint2{0, 0}; }
  __device__ __forceinline__ uint4 elements() const {
    return uint4{widen_codes<T>(raw.x & 0xffffu), widen_codes<T>(raw.x >> 16),
                 widen_codes<T>(raw.y & 0xffffu), widen_codes<T>(raw.y >> 16)};
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& chunk, int i) {
  return i == 0 ? chunk.x : i == 1 ? chunk.y : i == 2 ? chunk.z : chunk.w;
}

/// The tokens of a unit, kTiles tiles of 16 at a time. With g = lane / 4 and p = lane % 4 a thread
/// reads of keys the chunks p, p + 4, ... of tokens g and g + 8, of values the chunks g, g + 8, ...
/// of tokens 2p, 2p + 1, 2p + 8, 2p + 9.
template <typename T, typename S, int kDim, int kTiles>
struct Tokens {
  static constexpr int kKeyChunks = kDim / 32;
  static constexpr int kPasses = kDim / 64;
  static constexpr int kChunkBytes = 8 * static_cast<int>(sizeof(S));
  Chunk<T, S> keys[kTiles][2][kKeyChunks];
  Chunk<T, S> values[kTiles][kPasses][4];

  __device__ __forceinline__ void clear_keys() {
#pragma unroll
    for (int i = 0; i < kTiles * 2 * kKeyChunks; ++i) {
      keys[i / (2 * kKeyChunks)][i / kKeyChunks % 2][i % kKeyChunks].clear();
    }
  }
  __device__ __forceinline__ void load_keys(int at, const char* tile, int64_t row_bytes, int g,
                                            int p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const char* row = tile + (8 * half + g) * row_bytes + p * kChunkBytes;
#pragma unroll
      for (int i = 0; i < kKeyChunks; ++i) keys[at][half][i].load(row + 4 * i * kChunkBytes);
    }
  }
  /// Tokens outside [from, end) of the tile are zeros: nobody has written them, or nobody sees
  /// them.
  __device__ __forceinline__ void load_values(int at, const char* tile, int64_t row_bytes, int g,
                                              int p, int from, int end) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * p + i % 2 + 8 * (i / 2);
      const char* row = tile + token * row_bytes + g * kChunkBytes;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (token >= from && token < end) {
          values[at][pass][i].load(row + 8 * pass * kChunkBytes);
        } else {
          values[at][pass][i].clear();
        }
      }
    }
  }
};

/// Queries in the order in which Tokens reads keys.
template <typename T, int kDim>
struct Queries {
  uint32_t words[kDim / 16][4];

  __device__ __forceinline__ uint32_t pair(const T* row, int64_t stride, int dim) const {
    if (row == nullptr) return 0;
    return row[dim * stride].bits | static_cast<uint32_t>(row[(dim + 1) * stride].bits) << 16;
  }
  __device__ __forceinline__ void load(const KvAttendArgs& a, const KvUnit& unit, int g, int p) {
    const T* rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = g + 8 * i;
      rows[i] = row < unit.rows
                    ? static_cast<const T*>(a.q) + query_row(a, unit, unit.first_row + row)
                    : nullptr;
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int dim = step / 2 * 32 + p * 8 + step % 2 * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[step][i] = pair(rows[i % 2], a.q_strides[3], dim + i / 2 * 2);
      }
    }
  }
};

}  // namespace cudaexec::cuda
