// Where elements are not 0: counted per chunk, counts summed up, then written in order. Driven by
// cpp/ops/cuda/nonzero.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/index_args.h"

namespace cudaexec::cuda {
namespace {

constexpr int kEach = kCompactChunk / kIndexThreads;  // neighbouring elements of a thread

template <typename T>
__device__ __forceinline__ bool is_set(const void* values, int64_t i) {
  return widen(static_cast<const T*>(values)[i]) != 0;
}

/// Exclusive sums over the threads of a block; `total` is the sum of all. All threads call it.
__device__ __forceinline__ int64_t block_scan(int64_t* shared, int64_t value, int64_t* total) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned step = 1; step < kIndexThreads; step *= 2) {
    const int64_t add = threadIdx.x >= step ? shared[threadIdx.x - step] : 0;
    __syncthreads();
    shared[threadIdx.x] += add;
    __syncthreads();
  }
  const int64_t sum = shared[threadIdx.x] - value;
  *total = shared[kIndexThreads - 1];
  __syncthreads();
  return sum;
}

template <typename T>
__device__ __forceinline__ int64_t count_own(const void* values, int64_t first, int64_t count) {
  int64_t found = 0;
  for (int64_t i = first; i < first + kEach && i < count; ++i) found += is_set<T>(values, i);
  return found;
}

__device__ __forceinline__ int64_t own_first() {
  return static_cast<int64_t>(blockIdx.x) * kCompactChunk +
         static_cast<int64_t>(threadIdx.x) * kEach;
}

template <typename T>
__device__ __forceinline__ void count_chunk(const CountNonzeroArgs& a, int64_t* shared) {
  int64_t total = 0;
  block_scan(shared, count_own<T>(a.values, own_first(), a.count), &total);
  if (threadIdx.x == 0) a.counts[blockIdx.x] = total;
}

template <typename T>
__device__ __forceinline__ void compact_chunk(const CompactArgs& a, int64_t* shared) {
  const int64_t first = own_first();
  int64_t total = 0;
  int64_t rank =
      a.starts[blockIdx.x] + block_scan(shared, count_own<T>(a.values, first, a.count), &total);
  for (int64_t i = first; i < first + kEach && i < a.count; ++i) {
    const bool set = is_set<T>(a.values, i);
    if (a.ranks != nullptr) a.ranks[i] = set ? rank : -1;
    if (set && a.positions != nullptr) a.positions[rank] = i;
    rank += set;
  }
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_NONZERO(name, T)                                                   \
  CUDAEXEC_KERNEL(cudaexec_count_nonzero_##name, CountNonzeroArgs, kIndexThreads) { \
    __shared__ int64_t shared[kIndexThreads];                                       \
    count_chunk<T>(a, shared);                                                      \
  }                                                                                 \
  CUDAEXEC_KERNEL(cudaexec_compact_##name, CompactArgs, kIndexThreads) {            \
    __shared__ int64_t shared[kIndexThreads];                                       \
    compact_chunk<T>(a, shared);                                                    \
  }
CUDAEXEC_ALL_TYPES(CUDAEXEC_NONZERO)

CUDAEXEC_KERNEL(cudaexec_scan_counts, ScanCountsArgs, kIndexThreads) {
  __shared__ int64_t shared[kIndexThreads];
  int64_t before = 0;
  for (int64_t first = 0; first < a.count; first += kIndexThreads) {
    const int64_t i = first + threadIdx.x;
    int64_t total = 0;
    const int64_t sum = block_scan(shared, i < a.count ? a.counts[i] : 0, &total);
    if (i < a.count) a.counts[i] = before + sum;
    before += total;
  }
  if (threadIdx.x == 0) a.counts[a.count] = before;
}

CUDAEXEC_KERNEL(cudaexec_unravel, UnravelArgs, kIndexThreads) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kIndexThreads + threadIdx.x;
  if (i >= a.count) return;
  if (a.found != nullptr && i >= *a.found) {
    for (int dim = 0; dim < a.shape.rank; ++dim) {
      a.coordinates[i * a.row_stride + dim * a.dim_stride] = a.fill;
    }
    return;
  }
  int64_t position = a.positions[i];
  for (int dim = a.shape.rank - 1; dim >= 0; --dim) {
    const int64_t quotient = position / a.shape.sizes[dim];
    a.coordinates[i * a.row_stride + dim * a.dim_stride] = position - quotient * a.shape.sizes[dim];
    position = quotient;
  }
}

CUDAEXEC_KERNEL(cudaexec_repeat, RepeatArgs, kIndexThreads) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kIndexThreads + threadIdx.x;
  if (i < a.length && a.sums[i] < (i == 0 ? 0 : a.sums[i - 1])) {
    __trap();
    return;
  }
  if (i >= a.count) return;
  int64_t low = 0;
  int64_t high = a.length;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (a.sums[middle] > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == a.length) {  // more places than the counts give
    __trap();
  } else if (a.wide != 0) {
    static_cast<int64_t*>(a.out)[i] = low;
  } else {
    static_cast<int32_t*>(a.out)[i] = static_cast<int32_t>(low);
  }
}
