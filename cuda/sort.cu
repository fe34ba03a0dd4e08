// Stable sorting of many lines of any length: chunks in shared memory, then merging. Driven by
// cpp/ops/cuda/sort.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/sort_args.h"

namespace cudaexec::cuda {
namespace {

constexpr uint64_t kTop = uint64_t{1} << 63;

__device__ __forceinline__ uint64_t ordered(double value) {
  if (is_nan(value)) return ~uint64_t{0};
  if (value == 0) return kTop;  // also -0
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & kTop) != 0 ? ~bits : bits | kTop;
}
__device__ __forceinline__ uint64_t ordered(float value) {
  return ordered(static_cast<double>(value));
}
__device__ __forceinline__ uint64_t ordered(int64_t value) {
  return static_cast<uint64_t>(value) ^ kTop;
}

template <typename T>
__device__ __forceinline__ void make_keys(const SortKeysArgs& a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i >= a.count) return;
  const uint64_t key = ordered(widen(static_cast<const T*>(a.values)[i]));
  a.keys[i] = a.descending != 0 ? ~key : key;
  a.places[i] = static_cast<int32_t>(i % a.length);
}

__device__ __forceinline__ bool comes_after(uint64_t key, int32_t place, uint64_t other_key,
                                            int32_t other_place) {
  return key > other_key || (key == other_key && place > other_place);
}

/// Entries of `run` below `key` (or, with `equal`, not above it).
__device__ __forceinline__ int64_t rank_in(const uint64_t* run, int64_t count, uint64_t key,
                                           bool equal) {
  int64_t low = 0;
  int64_t high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const bool before = equal ? run[middle] <= key : run[middle] < key;
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_SORT_KEYS(name, T) \
  CUDAEXEC_KERNEL(cudaexec_sort_keys_##name, SortKeysArgs, kSortThreads) { make_keys<T>(a); }
CUDAEXEC_ALL_TYPES(CUDAEXEC_SORT_KEYS)

CUDAEXEC_KERNEL(cudaexec_sort_number, SortNumberArgs, kSortThreads) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i < a.count) a.places[i] = static_cast<int32_t>(i);
}

// Bitonic: places break ties, so the order is that of a stable sort.
CUDAEXEC_KERNEL(cudaexec_sort_chunks, SortChunksArgs, kSortThreads) {
  __shared__ uint64_t keys[kSortChunk];
  __shared__ int32_t places[kSortChunk];
  const int64_t line = blockIdx.x / a.chunks;
  const int64_t first = (blockIdx.x % a.chunks) * kSortChunk;
  const int64_t base = line * a.length + first;
  const auto count = static_cast<int>(smaller(a.length - first, kSortChunk));
  int padded = 1;
  while (padded < count) padded *= 2;
  for (int i = threadIdx.x; i < padded; i += kSortThreads) {
    keys[i] = i < count ? a.keys[base + i] : ~uint64_t{0};
    places[i] = i < count ? a.places[base + i] : INT32_MAX;
  }
  __syncthreads();
  for (int size = 2; size <= padded; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      for (int i = threadIdx.x; i < padded / 2; i += kSortThreads) {
        const int low = 2 * i - (i & (step - 1));
        const int high = low + step;
        const bool ascending = (low & size) == 0;
        if (comes_after(keys[low], places[low], keys[high], places[high]) == ascending) {
          const uint64_t key = keys[low];
          const int32_t place = places[low];
          keys[low] = keys[high];
          places[low] = places[high];
          keys[high] = key;
          places[high] = place;
        }
      }
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < count; i += kSortThreads) {
    a.keys[base + i] = keys[i];
    a.places[base + i] = places[i];
  }
}

// Each entry finds its place by its rank in the other run.
CUDAEXEC_KERNEL(cudaexec_sort_merge, SortMergeArgs, kSortThreads) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i >= a.count) return;
  const int64_t line = i / a.length;
  const int64_t at = i - line * a.length;
  const int64_t pair = at / (2 * a.run) * (2 * a.run);
  const int64_t middle = smaller(pair + a.run, a.length);
  const int64_t end = smaller(pair + 2 * a.run, a.length);
  const uint64_t* keys = a.keys + line * a.length;
  const uint64_t key = keys[at];
  // Equal keys of the left run come first.
  const int64_t to = at < middle
                         ? at + rank_in(keys + middle, end - middle, key, false)
                         : at - middle + pair + rank_in(keys + pair, middle - pair, key, true);
  a.to_keys[line * a.length + to] = key;
  a.to_places[line * a.length + to] = a.places[i];
}

#define CUDAEXEC_SORT_GATHER(nbytes, Element)                                        \
  CUDAEXEC_KERNEL(cudaexec_sort_gather_##nbytes, SortGatherArgs, kSortThreads) {     \
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x; \
    if (i >= a.count) return;                                                        \
    const int64_t line = i / a.kept;                                                 \
    const int32_t place = a.places[line * a.length + (i - line * a.kept)];           \
    static_cast<Element*>(a.values)[i] =                                             \
        static_cast<const Element*>(a.source)[line * a.length + place];              \
    a.indices[i] = place;                                                            \
  }
CUDAEXEC_SORT_GATHER(1, uint8_t)
CUDAEXEC_SORT_GATHER(2, uint16_t)
CUDAEXEC_SORT_GATHER(4, uint32_t)
CUDAEXEC_SORT_GATHER(8, uint64_t)

#define CUDAEXEC_SORT_MEDIAN(nbytes, Element)                                      \
  CUDAEXEC_KERNEL(cudaexec_sort_median_##nbytes, SortMedianArgs, 1) {              \
    const int64_t kept =                                                           \
        a.floating != 0 ? rank_in(a.keys, a.count, ~uint64_t{0}, false) : a.count; \
    const bool is_number = kept > 0 && (kept == a.count || a.ignore_nan != 0);     \
    const int32_t place = a.places[is_number ? (kept - 1) / 2 : a.count - 1];      \
    *static_cast<Element*>(a.out) = static_cast<const Element*>(a.source)[place];  \
  }
CUDAEXEC_SORT_MEDIAN(1, uint8_t)
CUDAEXEC_SORT_MEDIAN(2, uint16_t)
CUDAEXEC_SORT_MEDIAN(4, uint32_t)
CUDAEXEC_SORT_MEDIAN(8, uint64_t)
