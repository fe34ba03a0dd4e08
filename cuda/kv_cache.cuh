// Where a KV cache's tokens are, how they are stored, and which of them a unit of work reads.
#pragma once

#include <cstdint>

#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/kv_attention_args.h"

namespace cudaexec::cuda {

/// Float8, e4m3 without infinities.
struct Float8 {
  uint8_t bits;
};

#if defined(CUDAEXEC_EMULATION)
inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
#else
__device__ __forceinline__ float float_of(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t bits_of(float value) { return __float_as_uint(value); }
#endif

__device__ __forceinline__ float widen(Float8 x) {
  const uint32_t size = x.bits & 0x7fu;
  // The bits are float32's with an exponent that is 120 too small; subnormals are counted.
  const float value =
      size < 8u ? static_cast<float>(size) * 0.001953125f : float_of((size << 20) + (120u << 23));
  return float_of((size == 0x7fu ? 0x7fc00000u : bits_of(value)) | (x.bits & 0x80u) << 24);
}
/// To nearest even, beyond 448 to 448; NaN stays NaN.
__device__ __forceinline__ Float8 narrow(float x, Float8) {
  const uint32_t bits = bits_of(x);
  const uint32_t all = bits & 0x7fffffffu;
  const uint32_t size = all > 0x43e00000u ? 0x43e00000u : all;
  const uint32_t normal = (size + 0x7ffffu + (size >> 20 & 1u) - (120u << 23)) >> 20;
  const uint32_t subnormal = bits_of(float_of(size) + 16384.0f) - 0x46800000u;
  const uint32_t code = size < 0x3c800000u ? subnormal : normal;
  return {static_cast<uint8_t>((bits >> 24 & 0x80u) | (all > 0x7f800000u ? 0x7fu : code))};
}

/// The largest finite value, which larger ones are stored as.
__device__ __forceinline__ float saturate(float x, Float16) {
  return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}
__device__ __forceinline__ float saturate(float x, Bfloat16) {
  constexpr float kLargest = 3.3895313892515355e38f;
  return x > kLargest ? kLargest : x < -kLargest ? -kLargest : x;
}
__device__ __forceinline__ float saturate(float x, float) { return x; }
__device__ __forceinline__ float saturate(float x, Float8) { return x; }

/// A token's row of a kv head in slot `slot`, in bytes from `base`.
template <typename S>
__device__ __forceinline__ int64_t row_offset(const KvCacheArgs& a, int64_t part, int64_t slot,
                                              int item, int head) {
  const int64_t inside = slot & ((int64_t{1} << a.block_shift) - 1);
  const int64_t row = ((static_cast<int64_t>(item) << a.block_shift) + inside) * a.heads + head;
  return (slot >> a.block_shift) * a.page_nbytes + part +
         row * a.head_dim * static_cast<int64_t>(sizeof(S));
}

__device__ __forceinline__ int64_t slot_of(const KvCacheArgs& a, int64_t token) {
  return a.window == 0 ? token : token % a.slots;
}

/// What a unit of work does: query rows [first_row, first_row + rows) of a kv head, over the token
/// tiles [tile, last_tile), of which rows see the tokens [first, end).
struct KvUnit {
  int item, head, row_tile, split;
  int first_row, rows;
  int64_t first, end;
  int tile, last_tile;
};

/// Tiles of tokens that a row tile sees, and the tokens.
__device__ __forceinline__ void seen_tokens(const KvAttendArgs& a, int64_t position, KvUnit* unit) {
  unit->first_row = unit->row_tile * a.tile_rows;
  const int left = a.rows - unit->first_row;
  unit->rows = left < a.tile_rows ? left : a.tile_rows;
  unit->end = position + (unit->first_row + unit->rows - 1) / a.group + 1;
  unit->first = 0;
  if (a.cache.window != 0) {
    unit->first = position + unit->first_row / a.group - a.cache.window + 1;
    if (unit->first < 0) unit->first = 0;
  }
  unit->tile = static_cast<int>(unit->first / kKvTokenTile);
  unit->last_tile = static_cast<int>((unit->end + kKvTokenTile - 1) / kKvTokenTile);
}

/// Splits that have work: the tiles are dealt out evenly, whatever the length.
__device__ __forceinline__ int busy_splits(const KvAttendArgs& a, const KvUnit& all) {
  const int tiles = all.last_tile - all.tile;
  return tiles < a.splits ? tiles : a.splits;
}

/// Narrows a unit's tiles to those of part `part` of `parts`.
__device__ __forceinline__ void deal_out(int part, int parts, KvUnit* unit) {
  const int tiles = unit->last_tile - unit->tile;
  const int each = tiles / parts, more = tiles % parts;
  const int begin = part * each + (part < more ? part : more);
  unit->last_tile = unit->tile + begin + each + (part < more ? 1 : 0);
  unit->tile += begin;
}

/// Unit `index` of the grid; false if it has nothing to do.
__device__ __forceinline__ bool find_unit(const KvAttendArgs& a, int64_t index, KvUnit* unit) {
  const int heads = a.cache.batch * a.cache.heads;
  if (index >= static_cast<int64_t>(heads) * a.row_tiles * a.splits) return false;
  int at = static_cast<int>(index);
  int head;
  if (a.together == 0) {
    unit->row_tile = at % a.row_tiles;
    at /= a.row_tiles;
    head = at % heads;
    unit->split = at / heads;
  } else {
    head = at % heads;
    at /= heads;
    unit->row_tile = at % a.row_tiles;
    unit->split = at / a.row_tiles;
  }
  unit->item = head / a.cache.heads;
  unit->head = head % a.cache.heads;
  seen_tokens(a, a.word->position, unit);
  deal_out(unit->split, a.splits, unit);
  return unit->tile < unit->last_tile;
}

/// The row of a kv head among those of the partial results.
__device__ __forceinline__ int64_t partial_row(const KvAttendArgs& a, const KvUnit& unit, int row) {
  return (static_cast<int64_t>(unit.item) * a.cache.heads + unit.head) * a.rows + row;
}

/// The row among the partial results of all splits.
__device__ __forceinline__ int64_t partial_place(const KvAttendArgs& a, const KvUnit& unit,
                                                 int row) {
  return unit.split * static_cast<int64_t>(a.cache.batch) * a.cache.heads * a.rows +
         partial_row(a, unit, row);
}

/// Element 0 of a row of the result.
__device__ __forceinline__ int64_t out_row(const KvAttendArgs& a, const KvUnit& unit, int row) {
  const int64_t token = static_cast<int64_t>(unit.item) * a.tokens + row / a.group;
  const int head = unit.head * a.group + row % a.group;
  return (token * a.cache.heads * a.group + head) * a.cache.head_dim;
}

/// Element 0 of a query.
__device__ __forceinline__ int64_t query_row(const KvAttendArgs& a, const KvUnit& unit, int row) {
  const int head = unit.head * a.group + row % a.group;
  return unit.item * a.q_strides[0] + head * a.q_strides[1] + row / a.group * a.q_strides[2];
}

/// Whether the step's tokens have the positions that the session expects. If not, this step and all
/// later ones store nothing until the host knows.
__device__ __forceinline__ bool positions_fit(const KvAppendArgs& a, int threads, int* wrong) {
  const int64_t position = a.word->position;
  const bool poisoned = a.word->poisoned != 0;
  if (threadIdx.x == 0) *wrong = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < a.tokens; t += threads) {
    if (a.index[t * a.index_stride] != position + t) *wrong = 1;
  }
  __syncthreads();
  if (*wrong == 0 || poisoned) return *wrong == 0 && !poisoned;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    volatile KvFault* fault = a.fault;
    fault->expected = a.word->position;
    fault->found = a.index[0];
    __threadfence_system();
    fault->raised = 1;
    a.word->poisoned = 1;
  }
  return false;
}

template <typename T>
__device__ __forceinline__ T stored(T x, T) {
  return x;  // infinities stay
}
template <typename T, typename S>
__device__ __forceinline__ S stored(T x, S kind) {
  return narrow(saturate(static_cast<float>(widen(x)), kind), kind);
}
/// Stores an element of a step's keys or values.
template <typename T, typename S>
__device__ __forceinline__ void store_element(const KvAppendArgs& a, bool is_value, int item,
                                              int head, int64_t token, int64_t dim) {
  const int64_t* strides = is_value ? a.v_strides : a.k_strides;
  const T* from = static_cast<const T*>(is_value ? a.v : a.k) + item * strides[0] +
                  head * strides[1] + token * strides[2] + dim * strides[3];
  const int64_t slot = slot_of(a.cache, a.word->position + token);
  const int64_t part = is_value ? a.cache.value_offset : a.cache.key_offset;
  S* to = reinterpret_cast<S*>(static_cast<char*>(a.cache.base) +
                               row_offset<S>(a.cache, part, slot, item, head)) +
          dim;
  *to = stored(*from, S{});
}

}  // namespace cudaexec::cuda
