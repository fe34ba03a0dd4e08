// Storing a step's tokens in a KV cache, attention over it for any dtypes and head sizes, and the
// sum of partial results. Driven by cpp/ops/cuda/kv_attention.cpp; what is fast is in kv_matrix.cu.
#include <math.h>

#include "kernel.cuh"
#include "kv_cache.cuh"
#include "numbers.cuh"

namespace cudaexec::cuda {
namespace {

/// Whether the step's tokens have the positions that the session expects. If not, this step and all
/// later ones store nothing until the host knows.
__device__ __forceinline__ bool positions_fit(const KvAppendArgs& a, int* wrong) {
  const int64_t position = a.word->position;
  const bool poisoned = a.word->poisoned != 0;
  if (threadIdx.x == 0) *wrong = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < a.tokens; t += kKvAppendThreads) {
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

template <typename T, typename S>
__device__ __forceinline__ void append(const KvAppendArgs& a, int* wrong) {
  if (!positions_fit(a, wrong)) return;
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
    const int64_t place =
        unit.split * static_cast<int64_t>(a.cache.batch) * a.cache.heads * a.rows +
        partial_row(a, unit, row);
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

struct CombineShared {
  float sums[kKvCombineThreads][4];
  float largest[kKvCombineThreads], totals[kKvCombineThreads];
};

/// One block a row: groups of threads that hold four elements each add up splits in turns.
template <typename T>
__device__ __forceinline__ void combine(const KvAttendArgs& a, CombineShared& shared) {
  KvUnit unit;
  const int64_t row = blockIdx.x;
  unit.item = static_cast<int>(row / a.rows / a.cache.heads);
  unit.head = static_cast<int>(row / a.rows % a.cache.heads);
  const int own = static_cast<int>(row % a.rows);
  unit.row_tile = own / a.tile_rows;
  seen_tokens(a, a.word->position, &unit);
  const int splits = busy_splits(a, unit);
  const int dims = a.cache.head_dim;
  const int64_t rows = static_cast<int64_t>(a.cache.batch) * a.cache.heads * a.rows;
  const int width = (dims + 3) / 4;  // at most 128
  const int groups = kKvCombineThreads / width;
  const int group = threadIdx.x / width, first = threadIdx.x % width * 4;
  float sums[4] = {};
  float largest = -INFINITY, total = 0;
  if (group < groups) {
#pragma unroll 4
    for (int split = group; split < splits; split += groups) {
      const int64_t place = split * rows + row;
      const float other = a.largest[2 * place], part = a.largest[2 * place + 1];
      const float next = fmaxf(largest, other);
      const float base = next == -INFINITY ? 0.0f : next;
      const float mine = exp2f(largest - base), theirs = exp2f(other - base);
      total = total * mine + part * theirs;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = first + i < dims ? a.sums[place * dims + first + i] : 0.0f;
        sums[i] = sums[i] * mine + sum * theirs;
      }
      largest = next;
    }
  }
  shared.largest[threadIdx.x] = largest;
  shared.totals[threadIdx.x] = total;
#pragma unroll
  for (int i = 0; i < 4; ++i) shared.sums[threadIdx.x][i] = sums[i];
  __syncthreads();
  if (group != 0) return;
  for (int g = 1; g < groups; ++g) {
    const unsigned other = threadIdx.x + g * width;
    const float next = fmaxf(largest, shared.largest[other]);
    const float base = next == -INFINITY ? 0.0f : next;
    const float mine = exp2f(largest - base), theirs = exp2f(shared.largest[other] - base);
    total = total * mine + shared.totals[other] * theirs;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = sums[i] * mine + shared.sums[other][i] * theirs;
    largest = next;
  }
  const float factor = a.word->poisoned != 0 ? NAN : 1.0f / total;
  T* out = static_cast<T*>(a.out) + out_row(a, unit, own) + first;
  for (int i = 0; i < 4 && first + i < dims; ++i) out[i] = narrow(sums[i] * factor, T{});
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
