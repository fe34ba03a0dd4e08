// Sums, means and maxima of bags of table rows. An index or offset out of range stops the kernel.
// Driven by cpp/ops/cuda/embedding.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/embedding_args.h"

namespace cudaexec::cuda {
namespace {

__device__ __forceinline__ int64_t load(const void* values, int64_t i, int32_t wide) {
  return wide != 0 ? static_cast<const int64_t*>(values)[i]
                   : static_cast<const int32_t*>(values)[i];
}
__device__ __forceinline__ void store(void* values, int64_t i, int32_t wide, int64_t value) {
  if (wide != 0) {
    static_cast<int64_t*>(values)[i] = value;
  } else {
    static_cast<int32_t*>(values)[i] = static_cast<int32_t>(value);
  }
}

template <typename T>
__device__ __forceinline__ void fill_bag(const EmbeddingBagArgs& a) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBagThreads + threadIdx.x;
  if (item >= a.bags * a.width) return;
  const int64_t bag = item / a.width;
  const int64_t column = item - bag * a.width;
  const int64_t begin = load(a.offsets, bag, a.wide_offsets);
  const int64_t end =
      bag + 1 < a.bags || a.last_offset != 0 ? load(a.offsets, bag + 1, a.wide_offsets) : a.count;
  if (begin < 0 || end < begin || end > a.count || (bag == 0 && begin != 0)) {
    __trap();
    return;
  }
  Wide<T> sum = 0;
  int64_t found = 0;
  int64_t best = 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = load(a.indices, i, a.wide_indices);
    if (row < 0 || row >= a.rows) {
      __trap();
      return;
    }
    if (column == 0) store(a.bag_of_index, i, a.wide_indices, bag);
    if (row == a.padding) continue;
    Wide<T> value = widen(static_cast<const T*>(a.weight)[row * a.width + column]);
    if (a.mode == 2) {
      if (found == 0 || value > sum) {
        sum = value;
        best = row;
      }
    } else {
      if (a.samples != nullptr) value *= widen(static_cast<const T*>(a.samples)[i]);
      sum += value;
    }
    ++found;
  }
  if (a.mode == 1 && found > 0) sum /= static_cast<Wide<T>>(found);
  static_cast<T*>(a.out)[item] = narrow(sum, T{});
  if (a.max_rows != nullptr) store(a.max_rows, item, a.wide_indices, best);
  if (column == 0) store(a.bag_sizes, bag, a.wide_indices, found);
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_EMBEDDING_BAG(name, T) \
  CUDAEXEC_KERNEL(cudaexec_embedding_bag_##name, EmbeddingBagArgs, kBagThreads) { fill_bag<T>(a); }
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_EMBEDDING_BAG)
