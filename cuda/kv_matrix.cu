// Attention over a KV cache in 16-bit types as products of small matrices. A warp takes up to 16
// query rows of one kv head (all heads of the group, so keys and values are read once) and a part
// of the tokens, and works alone: no shared memory, no barriers. Operands go from memory into the
// registers that the products want them in, 16 bytes at a time: a product does not mind in which
// order the elements that it sums over come, nor which columns of the result are called which.
#include <math.h>

#include "kernel.cuh"
#include "kv_cache.cuh"
#include "numbers.cuh"
#include "warp.cuh"

namespace cudaexec::cuda {
namespace {

#if defined(CUDAEXEC_EMULATION)
inline uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffffu) | b << 16; }
inline uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
template <typename V>
inline V load_constant(const void* address) {
  V value;
  memcpy(&value, address, sizeof(value));
  return value;
}
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
template <typename V>
__device__ __forceinline__ V load_constant(const void* address) {
  return __ldg(static_cast<const V*>(address));
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
  __device__ __forceinline__ void load(const char* address) { raw = load_constant<uint4>(address); }
  __device__ __forceinline__ void clear() { raw = uint4{0, 0, 0, 0}; }
  __device__ __forceinline__ uint4 elements() const { return raw; }
};
template <typename T>
struct Chunk<T, Float8> {
  uint2 raw;
  __device__ __forceinline__ void load(const char* address) { raw = load_constant<uint2>(address); }
  __device__ __forceinline__ void clear() { raw = uint2{0, 0}; }
  __device__ __forceinline__ uint4 elements() const {
    return uint4{widen_codes<T>(raw.x & 0xffffu), widen_codes<T>(raw.x >> 16),
                 widen_codes<T>(raw.y & 0xffffu), widen_codes<T>(raw.y >> 16)};
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& chunk, int i) {
  return i == 0 ? chunk.x : i == 1 ? chunk.y : i == 2 ? chunk.z : chunk.w;
}

/// The tokens of a unit, a tile of 16 at a time. With g = lane / 4 and p = lane % 4 a thread reads
/// of keys the chunks p, p + 4, ... of tokens g and g + 8, of values the chunks g, g + 8, ... of
/// tokens 2p, 2p + 1, 2p + 8, 2p + 9.
template <typename T, typename S, int kDim>
struct Tokens {
  static constexpr int kKeyChunks = kDim / 32;
  static constexpr int kPasses = kDim / 64;
  static constexpr int kChunkBytes = 8 * static_cast<int>(sizeof(S));
  Chunk<T, S> keys[2][kKeyChunks];
  Chunk<T, S> values[kPasses][4];

  __device__ __forceinline__ void load_keys(const char* tile, int64_t row_bytes, int g, int p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const char* row = tile + (8 * half + g) * row_bytes + p * kChunkBytes;
#pragma unroll
      for (int i = 0; i < kKeyChunks; ++i) keys[half][i].load(row + 4 * i * kChunkBytes);
    }
  }
  /// Tokens outside [from, end) of the tile are zeros: nobody has written them, or nobody sees
  /// them.
  __device__ __forceinline__ void load_values(const char* tile, int64_t row_bytes, int g, int p,
                                              int from, int end) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * p + i % 2 + 8 * (i / 2);
      const char* row = tile + token * row_bytes + g * kChunkBytes;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (token >= from && token < end) {
          values[pass][i].load(row + 8 * pass * kChunkBytes);
        } else {
          values[pass][i].clear();
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

/// Running softmax of the thread's two rows, g and g + 8.
template <int kDim>
struct Rows {
  float sums[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float totals[2] = {};  // of this thread's tokens

  /// scores[half]: tokens 8 * half + 2p and the next, of row g and then of row g + 8; they become
  /// weights.
  __device__ __forceinline__ void soften(float (&scores)[2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float block = largest_of_four(fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]),
                                                fmaxf(scores[1][2 * r], scores[1][2 * r + 1])));
      const float next = fmaxf(largest[r], block);
      const float base = next == -INFINITY ? 0.0f : next;
      const float factor = exp2f(largest[r] - base);
      totals[r] *= factor;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        sums[i][2 * r] *= factor;
        sums[i][2 * r + 1] *= factor;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[half][2 * r + i];
          score = exp2f(score - base);
          totals[r] += score;
        }
      }
      largest[r] = next;
    }
  }
};

template <typename T, typename S, int kDim>
__device__ __forceinline__ void score(const Queries<T, kDim>& queries,
                                      const Tokens<T, S, kDim>& tokens, float (&scores)[2][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[half][i] = 0;
#pragma unroll
    for (int i = 0; i < Tokens<T, S, kDim>::kKeyChunks; ++i) {
      const uint4 keys = tokens.keys[half][i].elements();
      multiply<T>(scores[half], queries.words[2 * i], keys.x, keys.y);
      multiply<T>(scores[half], queries.words[2 * i + 1], keys.z, keys.w);
    }
  }
}

/// Adds the weighted values. Weights are two 16-bit numbers each, so that they lose nothing.
template <typename T, typename S, int kDim>
__device__ __forceinline__ void add_values(const float (&weights)[2][4],
                                           const Tokens<T, S, kDim>& tokens, Rows<kDim>& rows) {
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // row g or g + 8 by turns, then the other half of the tile
    const float x = weights[i / 2][i % 2 * 2], y = weights[i / 2][i % 2 * 2 + 1];
    high[i] = pack<T>(x, y);
    const float x_high = widen(T{static_cast<uint16_t>(high[i])});
    const float y_high = widen(T{static_cast<uint16_t>(high[i] >> 16)});
    low[i] = pack<T>(x - x_high, y - y_high);
  }
#pragma unroll
  for (int pass = 0; pass < Tokens<T, S, kDim>::kPasses; ++pass) {
    uint4 values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = tokens.values[pass][i].elements();
#pragma unroll
    for (int column = 0; column < 8; ++column) {
      const int word = column / 2;
      uint32_t b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t even = word_of(values[2 * i], word), odd = word_of(values[2 * i + 1], word);
        b[i] = column % 2 == 0 ? low_halves(even, odd) : high_halves(even, odd);
      }
      float (&sums)[4] = rows.sums[8 * pass + column];
      multiply<T>(sums, high, b[0], b[1]);
      multiply<T>(sums, low, b[0], b[1]);
    }
  }
}

/// Hides the tokens that a row does not see.
__device__ __forceinline__ void hide(const KvAttendArgs& a, int64_t first, const int64_t (&own)[2],
                                     int p, float (&scores)[2][4]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t token = first + 8 * (i / 4) + 2 * p + i % 2;
    const int64_t row = own[i % 4 / 2];
    const bool seen = token <= row && (a.cache.window == 0 || token > row - a.cache.window);
    float& score = scores[i / 4][i % 4];
    score = seen ? score * a.scale : -INFINITY;
  }
}

template <typename T, int kDim>
__device__ __forceinline__ void store(const KvAttendArgs& a, const KvUnit& unit, int g, int p,
                                      const Rows<kDim>& rows) {
  const bool poisoned = a.word->poisoned != 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = sum_of_four(rows.totals[r]);
    if (g + 8 * r >= unit.rows) continue;
    const int row = unit.first_row + g + 8 * r;
    const int64_t place =
        unit.split * static_cast<int64_t>(a.cache.batch) * a.cache.heads * a.rows +
        partial_row(a, unit, row);
    const float factor = poisoned ? NAN : 1.0f / total;
    T* out = static_cast<T*>(a.out) + out_row(a, unit, row);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        // Column c of product i is element 8c + i.
        const int dim = i / 8 * 64 + (2 * p + side) * 8 + i % 8;
        const float sum = rows.sums[i][2 * r + side];
        if (a.sums != nullptr) {
          a.sums[place * kDim + dim] = sum;
        } else {
          out[dim] = narrow(sum * factor, T{});
        }
      }
    }
    if (a.sums != nullptr && p == 0) {
      a.largest[2 * place] = rows.largest[r];
      a.largest[2 * place + 1] = total;
    }
  }
}

template <typename T, typename S, int kDim>
__device__ __forceinline__ void attend(const KvAttendArgs& a) {
  const int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
  KvUnit unit;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (kKvThreads / 32) + threadIdx.x / 32;
  if (!find_unit(a, index, &unit)) return;
  const int64_t position = a.word->position;
  const int64_t own[2] = {position + (unit.first_row + g) / a.group,
                          position + (unit.first_row + g + 8) / a.group};
  Queries<T, kDim> queries;
  queries.load(a, unit, g, p);
  Rows<kDim> rows;
  Tokens<T, S, kDim> tokens;
  const int64_t row_bytes = static_cast<int64_t>(a.cache.heads) * kDim * sizeof(S);
  const char* base = static_cast<const char*>(a.cache.base);
  int64_t slot = slot_of(a.cache, static_cast<int64_t>(unit.tile) * kKvTokenTile);
  const auto tile_of = [&](int64_t part) {
    return base + row_offset<S>(a.cache, part, slot, unit.item, unit.head);
  };
  tokens.load_keys(tile_of(a.cache.key_offset), row_bytes, g, p);
  for (int tile = unit.tile; tile < unit.last_tile; ++tile) {
    const int64_t first = static_cast<int64_t>(tile) * kKvTokenTile;
    const int64_t from = unit.first - first, end = unit.end - first;
    tokens.load_values(tile_of(a.cache.value_offset), row_bytes, g, p,
                       from > 0 ? static_cast<int>(from) : 0,
                       end < kKvTokenTile ? static_cast<int>(end) : kKvTokenTile);
    float scores[2][4];
    score(queries, tokens, scores);
    slot += kKvTokenTile;
    if (slot == a.cache.slots) slot = 0;
    // On their way while this tile's values arrive and are added up.
    if (tile + 1 < unit.last_tile) {
      tokens.load_keys(tile_of(a.cache.key_offset), row_bytes, g, p);
    }
    hide(a, first, own, p, scores);
    rows.soften(scores);
    add_values(scores, tokens, rows);
  }
  store<T, kDim>(a, unit, g, p, rows);
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_KV_MATRIX(name, T, stored, S, dim)                                         \
  CUDAEXEC_KERNEL(cudaexec_kv_matrix_##name##_##stored##_##dim, KvAttendArgs, kKvThreads) { \
    attend<T, S, dim>(a);                                                                   \
  }
#define CUDAEXEC_KV_MATRICES(name, T)                     \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 64)                \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 128)               \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 256)               \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 64)  \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 128) \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 256)
CUDAEXEC_KV_MATRICES(float16, Float16)
CUDAEXEC_KV_MATRICES(bfloat16, Bfloat16)
