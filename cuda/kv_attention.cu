// Storing a step's tokens in a KV cache, attention over it for any dtypes and head sizes, and the
// sum of partial results. Driven by cpp/ops/cuda/kv_attention.cpp; what is fast is in kv_matrix.cu.
#include <math.h>

#include "kernel.cuh"
#include "kv_cache.cuh"
#include "numbers.cuh"
#include "warp.cuh"

namespace cudaexec::cuda {
namespace {

template <typename T, typename S>
__device__ __forceinline__ void append(const KvAppendArgs& a, int* wrong) {
  if (!positions_fit(a, kKvAppendThreads, wrong)) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kKvAppendThreads + threadIdx.x;
  if (i >= 2 * a.count) return;
  const bool is_value = i >= a.count;
  int64_t at = is_value ? i - a.count : i;
  const int64_t dim = at % a.cache.head_dim;
  at /= a.cache.head_dim;
  const int head = static_cast<int>(at % a.cache.heads);
  at /= a.cache.heads;
  const int64_t token = at % a.tokens;
  const int item = static_cast<int>(at / a.tokens);
  store_element<T, S>(a, is_value, item, head, token, dim);
}

/// Shared memory of a block that attends without matrix products.
struct PlainShared {
  float queries[kKvPlainRows][kKvPlainDim];
  float weights[kKvPlainRows][kKvThreads];
  float largest[kKvPlainRows], totals[kKvPlainRows], factors[kKvPlainRows];
};

/// Scores of one token, a thread each, for all rows of the unit.
template <typename S>
__device__ __forceinline__ void score_token(const KvAttendArgs& a, const KvUnit& unit,
                                            int64_t position, int64_t token, PlainShared& shared) {
  float scores[kKvPlainRows] = {};
  if (token < unit.end) {
    const S* key = reinterpret_cast<const S*>(
        static_cast<const char*>(a.cache.base) +
        row_offset<S>(a.cache, a.cache.key_offset, slot_of(a.cache, token), unit.item, unit.head));
    for (int d = 0; d < a.cache.head_dim; ++d) {
      const float element = widen(key[d]);
#pragma unroll
      for (int r = 0; r < kKvPlainRows; ++r) scores[r] += shared.queries[r][d] * element;
    }
  }
#pragma unroll
  for (int r = 0; r < kKvPlainRows; ++r) {
    const int64_t own = position + (unit.first_row + r) / a.group;
    const bool seen =
        r < unit.rows && token <= own && (a.cache.window == 0 || token > own - a.cache.window);
    shared.weights[r][threadIdx.x] = seen ? scores[r] * a.scale : -INFINITY;
  }
}

/// Turns the block's scores into weights; a thread a row.
__device__ __forceinline__ void soften_rows(PlainShared& shared) {
  if (threadIdx.x >= kKvPlainRows) return;
  const int r = threadIdx.x;
  float largest = shared.largest[r];
  for (unsigned t = 0; t < kKvThreads; ++t) largest = fmaxf(largest, shared.weights[r][t]);
  const float base = largest == -INFINITY ? 0.0f : largest;
  const float factor = exp2f(shared.largest[r] - base);
  float total = shared.totals[r] * factor;
  for (unsigned t = 0; t < kKvThreads; ++t) {
    const float weight = exp2f(shared.weights[r][t] - base);
    shared.weights[r][t] = weight;
    total += weight;
  }
  shared.largest[r] = largest;
  shared.totals[r] = total;
  shared.factors[r] = factor;
}

template <typename T, typename S>
__device__ __forceinline__ void attend(const KvAttendArgs& a, PlainShared& shared) {
  constexpr int kParts = kKvPlainDim / kKvThreads;
  KvUnit unit;
  if (!find_unit(a, blockIdx.x, &unit)) return;
  const int64_t position = a.word->position;
  const int dims = a.cache.head_dim;
  for (int i = threadIdx.x; i < kKvPlainRows * dims; i += kKvThreads) {
    const int r = i / dims, d = i % dims;
    float value = 0;
    if (r < unit.rows) {
      value = widen(
          static_cast<const T*>(a.q)[query_row(a, unit, unit.first_row + r) + d * a.q_strides[3]]);
    }
    shared.queries[r][d] = value;
  }
  if (threadIdx.x < kKvPlainRows) {
    shared.largest[threadIdx.x] = -INFINITY;
    shared.totals[threadIdx.x] = 0;
  }
  float sums[kKvPlainRows][kParts] = {};
  const int64_t end = static_cast<int64_t>(unit.last_tile) * kKvTokenTile;
  const int64_t last = unit.end < end ? unit.end : end;
  for (int64_t first = static_cast<int64_t>(unit.tile) * kKvTokenTile; first < last;
       first += kKvThreads) {
    __syncthreads();
    const int64_t token = first + threadIdx.x;
    score_token<S>(a, unit, position, token < last ? token : unit.end, shared);
    __syncthreads();
    soften_rows(shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kKvPlainRows; ++r) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) sums[r][part] *= shared.factors[r];
    }
    const int64_t from = first > unit.first ? first : unit.first;
    for (int64_t t = from; t < last && t < first + kKvThreads; ++t) {
      const S* value = reinterpret_cast<const S*>(
          static_cast<const char*>(a.cache.base) +
          row_offset<S>(a.cache, a.cache.value_offset, slot_of(a.cache, t), unit.item, unit.head));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int d = part * kKvThreads + threadIdx.x;
        if (d >= dims) continue;
        const float element = widen(value[d]);
#pragma unroll
        for (int r = 0; r < kKvPlainRows; ++r) {
          sums[r][part] += shared.weights[r][t - first] * element;
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kKvPlainRows; ++r) {
    if (r >= unit.rows) continue;
    const int row = unit.first_row + r;
    const int64_t place = partial_place(a, unit, row);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int d = part * kKvThreads + threadIdx.x;
      if (d >= dims) continue;
      if (a.sums != nullptr) {
        a.sums[place * dims + d] = sums[r][part];
      } else {
        const float value = a.word->poisoned != 0 ? NAN : sums[r][part] / shared.totals[r];
        static_cast<T*>(a.out)[out_row(a, unit, row) + d] = narrow(value, T{});
      }
    }
    if (a.sums != nullptr && threadIdx.x == 0) {
      a.largest[2 * place] = shared.largest[r];
      a.largest[2 * place + 1] = shared.totals[r];
    }
  }
}

/// Up to four of `left` elements; `aligned` says that they are four, at a multiple of 16 bytes.
__device__ __forceinline__ void load_four(const float* from, int left, bool aligned,
                                          float (&to)[4]) {
  if (aligned) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    to[0] = all.x;
    to[1] = all.y;
    to[2] = all.z;
    to[3] = all.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = i < left ? from[i] : 0.0f;
}

struct CombineShared {
  float sums[kKvCombineThreads][4];
  float factors[kKvMostSplits];
  float largest[kKvCombineThreads / 32], totals[kKvCombineThreads / 32];
};

/// Shares of the splits in a row, in shared.factors; returns the sum of exponentials.
__device__ __forceinline__ float weigh_splits(const float* largest, int64_t stride, int splits,
                                              CombineShared& shared) {
  constexpr int kWarps = kKvCombineThreads / 32;
  constexpr int kMost = kKvMostSplits / kKvCombineThreads;
  const int warp = threadIdx.x / 32;
  float own[kMost], parts[kMost];
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int split = i * kKvCombineThreads + threadIdx.x;
    own[i] = split < splits ? largest[split * stride] : -INFINITY;
    parts[i] = split < splits ? largest[split * stride + 1] : 0.0f;
    most = fmaxf(most, own[i]);
  }
  most = largest_of_warp(most);
  if (threadIdx.x % 32 == 0) shared.largest[warp] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) most = fmaxf(most, shared.largest[i]);
  const float base = most == -INFINITY ? 0.0f : most;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int split = i * kKvCombineThreads + threadIdx.x;
    const float factor = exp2f(own[i] - base);
    if (split < splits) shared.factors[split] = factor;
    total += parts[i] * factor;
  }
  total = sum_of_warp(total);
  if (threadIdx.x % 32 == 0) shared.totals[warp] = total;
  __syncthreads();
  total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += shared.totals[i];
  return total;
}

/// One block a row: groups of threads that hold four elements each add up splits in turns.
template <typename T>
__device__ __forceinline__ void combine(const KvAttendArgs& a, CombineShared& shared) {
  KvUnit unit;
  const int row = blockIdx.x;
  const int own = row % a.rows;
  unit.item = row / a.rows / a.cache.heads;
  unit.head = row / a.rows % a.cache.heads;
  unit.row_tile = own / a.tile_rows;
  seen_tokens(a, a.word->position, &unit);
  const int splits = busy_splits(a, unit);
  const int dims = a.cache.head_dim;
  const int64_t rows = static_cast<int64_t>(a.cache.batch) * a.cache.heads * a.rows;
  const int width = (dims + 3) / 4;  // at most 128
  const int groups = kKvCombineThreads / width;
  const int group = threadIdx.x / width, first = threadIdx.x % width * 4;
  const float total = weigh_splits(a.largest + 2 * row, 2 * rows, splits, shared);
  float sums[4] = {};
  if (group < groups) {
    const float* from = a.sums + row * static_cast<int64_t>(dims) + first;
#pragma unroll 8
    for (int split = group; split < splits; split += groups) {
      const float factor = shared.factors[split];
      float part[4];
      load_four(from + split * rows * dims, dims - first, dims % 4 == 0, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += factor * part[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) shared.sums[threadIdx.x][i] = sums[i];
  __syncthreads();
  // An element a thread.
  const float factor = a.word->poisoned != 0 ? NAN : 1.0f / total;
  for (int d = threadIdx.x; d < dims; d += kKvCombineThreads) {
    float sum = 0;
#pragma unroll 8
    for (int g = 0; g < groups; ++g) sum += shared.sums[g * width + d / 4][d % 4];
    static_cast<T*>(a.out)[out_row(a, unit, own) + d] = narrow(sum * factor, T{});
  }
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_KV_PAIR(name, T, stored, S)                                              \
  CUDAEXEC_KERNEL(cudaexec_kv_append_##name##_##stored, KvAppendArgs, kKvAppendThreads) { \
    __shared__ int wrong;                                                                 \
    append<T, S>(a, &wrong);                                                              \
  }                                                                                       \
  CUDAEXEC_KERNEL(cudaexec_kv_attend_##name##_##stored, KvAttendArgs, kKvThreads) {       \
    __shared__ PlainShared shared;                                                        \
    attend<T, S>(a, shared);                                                              \
  }
#define CUDAEXEC_KV_TYPE(name, T)                                                \
  CUDAEXEC_KV_PAIR(name, T, float32, float)                                      \
  CUDAEXEC_KV_PAIR(name, T, float16, Float16)                                    \
  CUDAEXEC_KV_PAIR(name, T, bfloat16, Bfloat16)                                  \
  CUDAEXEC_KV_PAIR(name, T, float8_e4m3fn, Float8)                               \
  CUDAEXEC_KERNEL(cudaexec_kv_combine_##name, KvAttendArgs, kKvCombineThreads) { \
    __shared__ CombineShared shared;                                             \
    combine<T>(a, shared);                                                       \
  }
CUDAEXEC_KV_TYPE(float32, float)
CUDAEXEC_KV_TYPE(float16, Float16)
CUDAEXEC_KV_TYPE(bfloat16, Bfloat16)
