// Attention over a KV cache in 16-bit types as products of small matrices. A unit of work is up to
// 16 query rows of one kv head (all heads of the group, so keys and values are read once) over a
// part of the tokens. A warp takes a part of its own; where there are few rows, the warps of a
// block take parts of one unit, add up what they found in shared memory, and store the step's
// tokens as well, which saves a launch.
#include <math.h>

#include "kernel.cuh"
#include "kv_cache.cuh"
#include "kv_tokens.cuh"
#include "numbers.cuh"
#include "warp.cuh"

namespace cudaexec::cuda {
namespace {

/// Running softmax of the thread's two rows, g and g + 8.
template <int kDim>
struct Rows {
  float sums[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float totals[2] = {};  // of this thread's tokens

  __device__ __forceinline__ void scale(int r, float factor) {
    totals[r] *= factor;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      sums[i][2 * r] *= factor;
      sums[i][2 * r + 1] *= factor;
    }
  }
  /// scores[half]: tokens 8 * half + 2p and the next, of row g and then of row g + 8; they become
  /// weights.
  template <int kHalves>
  __device__ __forceinline__ void soften(float (&scores)[kHalves][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float block = -INFINITY;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        block = fmaxf(block, fmaxf(scores[half][2 * r], scores[half][2 * r + 1]));
      }
      const float next = fmaxf(largest[r], largest_of_four(block));
      const float base = next == -INFINITY ? 0.0f : next;
      scale(r, exp2f(largest[r] - base));
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
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

template <typename T, typename S, int kDim, int kTiles>
__device__ __forceinline__ void score(const Queries<T, kDim>& queries,
                                      const Tokens<T, S, kDim, kTiles>& tokens,
                                      float (&scores)[2 * kTiles][4]) {
#pragma unroll
  for (int half = 0; half < 2 * kTiles; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[half][i] = 0;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 keys = tokens.keys[half / 2][half % 2][i].elements();
      multiply<T>(scores[half], queries.words[2 * i], keys.x, keys.y);
      multiply<T>(scores[half], queries.words[2 * i + 1], keys.z, keys.w);
    }
  }
}

/// Adds the weighted values of tile `at`. Weights are two 16-bit numbers each, so that they lose
/// nothing.
template <typename T, typename S, int kDim, int kTiles>
__device__ __forceinline__ void add_values(int at, const float (&weights)[2 * kTiles][4],
                                           const Tokens<T, S, kDim, kTiles>& tokens,
                                           Rows<kDim>& rows) {
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // row g or g + 8 by turns, then the other half of the tile
    const float (&own)[4] = weights[2 * at + i / 2];
    const float x = own[i % 2 * 2], y = own[i % 2 * 2 + 1];
    high[i] = pack<T>(x, y);
    const float x_high = widen(T{static_cast<uint16_t>(high[i])});
    const float y_high = widen(T{static_cast<uint16_t>(high[i] >> 16)});
    low[i] = pack<T>(x - x_high, y - y_high);
  }
#pragma unroll
  for (int pass = 0; pass < kDim / 64; ++pass) {
    uint4 values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = tokens.values[at][pass][i].elements();
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

/// What the rows of a unit see of its tokens.
struct Sight {
  int64_t own[2];            // the thread's rows' own tokens
  int64_t window;            // 0: all
  int64_t stop;              // end of the unit
  int64_t all_from, all_to;  // seen by every row

  __device__ __forceinline__ Sight(const KvAttendArgs& a, const KvUnit& unit, int g) {
    const int64_t position = a.word->position;
    own[0] = position + (unit.first_row + g) / a.group;
    own[1] = position + (unit.first_row + g + 8) / a.group;
    window = a.cache.window;
    stop = static_cast<int64_t>(unit.last_tile) * kKvTokenTile;
    const int64_t last = position + (unit.first_row + kKvMatrixRows - 1) / a.group;
    all_from = window == 0 ? 0 : last - window + 1;
    all_to = position + unit.first_row / a.group + 1;
    if (all_to > stop) all_to = stop;
  }
  /// Scales scores, and hides the tokens that a row does not see.
  template <int kHalves>
  __device__ __forceinline__ void apply(float scale, int64_t first, int p,
                                        float (&scores)[kHalves][4]) const {
    const bool all = first >= all_from && first + 8 * kHalves <= all_to;
#pragma unroll
    for (int i = 0; i < 4 * kHalves; ++i) {
      float& score = scores[i / 4][i % 4];
      score *= scale;
      if (all) continue;
      const int64_t token = first + 8 * (i / 4) + 2 * p + i % 2;
      const int64_t row = own[i % 4 / 2];
      if (token > row || token >= stop || (window != 0 && token <= row - window)) {
        score = -INFINITY;
      }
    }
  }
};

/// Column c of product i is this element of a head, of a thread's two columns 2p and 2p + 1.
__device__ __forceinline__ int element_of(int i, int p, int side) {
  return i / 8 * 64 + (2 * p + side) * 8 + i % 8;
}

/// Stores what a warp found alone.
template <typename T, int kDim>
__device__ __forceinline__ void store(const KvAttendArgs& a, const KvUnit& unit, int g, int p,
                                      const Rows<kDim>& rows) {
  const bool poisoned = a.word->poisoned != 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = sum_of_four(rows.totals[r]);
    if (g + 8 * r >= unit.rows) continue;
    const int row = unit.first_row + g + 8 * r;
    const int64_t place = partial_place(a, unit, row);
    const float factor = poisoned ? NAN : 1.0f / total;
    T* out = static_cast<T*>(a.out) + out_row(a, unit, row);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int dim = element_of(i, p, side);
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

/// Where the warps of a block add up what they found in their parts of the tokens.
template <int kDim>
struct Shared {
  static constexpr int kWidth = kDim < 128 ? kDim : 128;  // elements at a time
  float sums[kKvWarps][kKvMatrixRows][kWidth + 4];
  float largest[kKvWarps][kKvMatrixRows], totals[kKvWarps][kKvMatrixRows];
  int wrong;
};

/// Stores what the warps of a block found together.
template <typename T, int kDim>
__device__ __forceinline__ void store_together(const KvAttendArgs& a, const KvUnit& unit, int g,
                                               int p, bool poisoned, Rows<kDim>& rows,
                                               Shared<kDim>& shared) {
  constexpr int kWidth = Shared<kDim>::kWidth;
  const int warp = threadIdx.x / 32;
  if (p == 0) {
    shared.largest[warp][g] = rows.largest[0];
    shared.largest[warp][g + 8] = rows.largest[1];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float next = shared.largest[0][g + 8 * r];
#pragma unroll
    for (int other = 1; other < kKvWarps; ++other) {
      next = fmaxf(next, shared.largest[other][g + 8 * r]);
    }
    rows.scale(r, exp2f(rows.largest[r] - (next == -INFINITY ? 0.0f : next)));
    rows.largest[r] = next;
    const float total = sum_of_four(rows.totals[r]);
    if (p == 0) shared.totals[warp][g + 8 * r] = total;
  }
#pragma unroll
  for (int begin = 0; begin < kDim; begin += kWidth) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r >= unit.rows) continue;
#pragma unroll
      for (int i = begin / 8; i < (begin + kWidth) / 8; ++i) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          shared.sums[warp][g + 8 * r][element_of(i, p, side) - begin] = rows.sums[i][2 * r + side];
        }
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < unit.rows * kWidth; at += kKvThreads) {
      const int own = at / kWidth, dim = at % kWidth;
      float sum = 0, total = 0;
#pragma unroll
      for (int other = 0; other < kKvWarps; ++other) {
        sum += shared.sums[other][own][dim];
        total += shared.totals[other][own];
      }
      const int row = unit.first_row + own;
      const int64_t place = partial_place(a, unit, row);
      if (a.sums == nullptr) {
        T* out = static_cast<T*>(a.out) + out_row(a, unit, row);
        out[begin + dim] = narrow(poisoned ? NAN : sum / total, T{});
        continue;
      }
      a.sums[place * kDim + begin + dim] = sum;
      if (begin + dim == 0) {
        float next = shared.largest[0][own];
#pragma unroll
        for (int other = 1; other < kKvWarps; ++other) {
          next = fmaxf(next, shared.largest[other][own]);
        }
        a.largest[2 * place] = next;
        a.largest[2 * place + 1] = total;
      }
    }
    if (begin + kWidth < kDim) __syncthreads();
  }
}

/// Stores those of the step's tokens that lie in a warp's part, which nobody else reads.
template <typename T, typename S, int kDim>
__device__ __forceinline__ void append(const KvAttendArgs& a, const KvUnit& unit) {
  const int64_t position = a.word->position;
  const int64_t begin = static_cast<int64_t>(unit.tile) * kKvTokenTile - position;
  const int64_t end = static_cast<int64_t>(unit.last_tile) * kKvTokenTile - position;
  const int64_t last = end < a.tokens ? end : a.tokens;
  for (int64_t token = begin > 0 ? begin : 0; token < last; ++token) {
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {  // keys first
      const int dim = i % (kDim / 32) * 32 + threadIdx.x % 32;
      store_element<T, S>(a, i >= kDim / 32, unit.item, unit.head, token, dim);
    }
  }
  __syncwarp();
}

/// What the rows of a unit find in its tokens.
template <typename T, typename S, int kDim, int kTiles>
__device__ __forceinline__ void find(const KvAttendArgs& a, const KvUnit& unit, int g, int p,
                                     Rows<kDim>& rows) {
  const Sight sight(a, unit, g);
  Queries<T, kDim> queries;
  queries.load(a, unit, g, p);
  Tokens<T, S, kDim, kTiles> tokens;
  if (kTiles > 1) tokens.clear_keys();
  const int64_t row_bytes = static_cast<int64_t>(a.cache.heads) * kDim * sizeof(S);
  const char* base = static_cast<const char*>(a.cache.base);
  const int64_t end = unit.end < sight.stop ? unit.end : sight.stop;
  // Of the tiles in hand, in bytes, without the offset of keys or values in a page.
  int64_t places[kTiles];
  int64_t slot = slot_of(a.cache, static_cast<int64_t>(unit.tile) * kKvTokenTile);
  const auto walk = [&] {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      places[i] = row_offset<S>(a.cache, 0, slot, unit.item, unit.head);
      slot += kKvTokenTile;
      if (slot == a.cache.slots) slot = 0;
    }
  };
  const auto load_keys = [&](int tile) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i > 0 && tile + i >= unit.last_tile) break;
      tokens.load_keys(i, base + a.cache.key_offset + places[i], row_bytes, g, p);
    }
  };
  walk();
  load_keys(unit.tile);
  for (int tile = unit.tile; tile < unit.last_tile; tile += kTiles) {
    const int64_t first = static_cast<int64_t>(tile) * kKvTokenTile;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int64_t begin = first + i * kKvTokenTile;
      const int64_t from = unit.first - begin, to = end - begin;
      tokens.load_values(i, base + a.cache.value_offset + places[i], row_bytes, g, p,
                         from > 0 ? static_cast<int>(from) : 0,
                         to < kKvTokenTile ? static_cast<int>(to) : kKvTokenTile);
    }
    float scores[2 * kTiles][4];
    score(queries, tokens, scores);
    // On their way while these tiles' values arrive and are added up.
    walk();
    if (tile + kTiles < unit.last_tile) load_keys(tile + kTiles);
    sight.apply(a.scale, first, p, scores);
    rows.soften(scores);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) add_values(i, scores, tokens, rows);
  }
}

template <typename T, typename S, int kDim, int kTiles>
__device__ __forceinline__ void attend(const KvAttendArgs& a, Shared<kDim>& shared) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
  KvUnit unit;
  Rows<kDim> rows;
  if (a.together == 0) {
    if (!find_unit(a, static_cast<int64_t>(blockIdx.x) * kKvWarps + warp, &unit)) return;
    find<T, S, kDim, kTiles>(a, unit, g, p, rows);
    store<T, kDim>(a, unit, g, p, rows);
    return;
  }
  if (!find_unit(a, blockIdx.x, &unit)) return;  // the whole block
  const bool poisoned =
      a.fused != 0 ? !positions_fit(a, kKvThreads, &shared.wrong) : a.word->poisoned != 0;
  deal_out(warp, kKvWarps, &unit);
  if (unit.tile < unit.last_tile) {
    if (a.fused != 0 && !poisoned) append<T, S, kDim>(a, unit);
    find<T, S, kDim, kTiles>(a, unit, g, p, rows);
  }
  store_together<T, kDim>(a, unit, g, p, poisoned, rows, shared);
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

// Tiles at a time: what keeps enough bytes on their way with the registers there are.
#define CUDAEXEC_KV_MATRIX(name, T, stored, S, dim, tiles)                                  \
  CUDAEXEC_KERNEL(cudaexec_kv_matrix_##name##_##stored##_##dim, KvAttendArgs, kKvThreads) { \
    __shared__ Shared<dim> shared;                                                          \
    attend<T, S, dim, tiles>(a, shared);                                                    \
  }
#define CUDAEXEC_KV_MATRICES(name, T)                        \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 64, 1)                \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 128, 1)               \
  CUDAEXEC_KV_MATRIX(name, T, name, T, 256, 1)               \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 64, 2)  \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 128, 1) \
  CUDAEXEC_KV_MATRIX(name, T, float8_e4m3fn, Float8, 256, 1)
CUDAEXEC_KV_MATRICES(float16, Float16)
CUDAEXEC_KV_MATRICES(bfloat16, Bfloat16)
