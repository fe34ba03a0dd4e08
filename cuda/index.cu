// Reading and writing through index tensors. An index out of range stops the kernel, which makes
// the device unusable for the process, as torch's assertion does. Driven by cpp/ops/cuda/index.cpp
// and scatter.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/index_args.h"

namespace cudaexec::cuda {
namespace {

__device__ __forceinline__ int64_t own_index() {
  return static_cast<int64_t>(blockIdx.x) * kIndexThreads + threadIdx.x;
}

/// Splits a linear index, last dimension fastest, calling visit(dimension, coordinate).
template <typename Visit>
__device__ __forceinline__ void split(const IndexShape& shape, int64_t index, const Visit& visit) {
  for (int dim = shape.rank - 1; dim >= 0; --dim) {
    const int64_t quotient = index / shape.sizes[dim];
    visit(dim, index - quotient * shape.sizes[dim]);
    index = quotient;
  }
}

__device__ __forceinline__ int64_t load_index(const void* base, int64_t offset, int32_t wide) {
  const char* at = static_cast<const char*>(base) + offset;
  return wide != 0 ? *reinterpret_cast<const int64_t*>(at) : *reinterpret_cast<const int32_t*>(at);
}

template <typename T>
__device__ __forceinline__ T* at(void* base, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}
template <typename T>
__device__ __forceinline__ const T* at(const void* base, int64_t offset) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + offset);
}

__device__ __forceinline__ int64_t floor_divide(int64_t x, int64_t y) {
  const int64_t quotient = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}
__device__ __forceinline__ float floor_divide(float x, int64_t y) {
  return x / static_cast<float>(y);
}
__device__ __forceinline__ double floor_divide(double x, int64_t y) {
  return x / static_cast<double>(y);
}

template <typename W>
__device__ __forceinline__ W combined(Combine combine, W old, W value) {
  switch (combine) {
    case Combine::kProd:
      return old * value;
    case Combine::kMax:
      return is_nan(old) || old > value ? old : value;
    case Combine::kMin:
      return is_nan(old) || old < value ? old : value;
    default:
      return old + value;
  }
}

template <typename T>
__device__ __forceinline__ void combine_run(const CombineRunsArgs& a) {
  const int64_t first = own_index();
  if (first >= a.count || (first > 0 && a.places[first - 1] == a.places[first])) return;
  const T* values = static_cast<const T*>(a.values);
  T* target = at<T>(a.out, a.places[first]);
  Wide<T> sum = widen(a.include_self != 0 ? *target : values[a.order[first]]);
  int64_t i = a.include_self != 0 ? first : first + 1;
  for (; i < a.count && a.places[i] == a.places[first]; ++i) {
    sum = combined(a.combine, sum, widen(values[a.order[i]]));
  }
  if (a.combine == Combine::kMean) {
    sum = floor_divide(sum, i - first + (a.include_self != 0 ? 1 : 0));
  }
  *target = narrow(sum, T{});
}

// CUDA has no atomicAdd of int64_t by that name.
__device__ __forceinline__ void add_atomically(float* target, float value) {
  atomicAdd(target, value);
}
__device__ __forceinline__ void add_atomically(double* target, double value) {
  atomicAdd(target, value);
}
__device__ __forceinline__ void add_atomically(int32_t* target, int32_t value) {
  atomicAdd(target, value);
}
__device__ __forceinline__ void add_atomically(int64_t* target, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

CUDAEXEC_KERNEL(cudaexec_index_offsets, IndexOffsetsArgs, kIndexThreads) {
  const int64_t i = own_index();
  if (i >= a.count) return;
  int64_t from = 0;
  split(a.shape, i, [&](int dim, int64_t c) { from += c * a.index_strides[dim]; });
  int64_t index = load_index(a.index, from, a.wide);
  if (index < 0) index += a.size;
  if (index < 0 || index >= a.size) {
    __trap();
    return;
  }
  a.offsets[i] = index * a.stride + (a.add != 0 ? a.offsets[i] : 0);
}

CUDAEXEC_KERNEL(cudaexec_index_places, IndexPlacesArgs, kIndexThreads) {
  const int64_t i = own_index();
  if (i >= a.count) return;
  int64_t place = 0;
  int64_t position = 0;
  split(a.shape, i, [&](int dim, int64_t c) {
    place += c * a.self_strides[dim];
    position += c * a.block_strides[dim];
  });
  a.places[i] = place + a.offsets[position];
}

CUDAEXEC_KERNEL(cudaexec_scatter_places, ScatterPlacesArgs, kIndexThreads) {
  const int64_t i = own_index();
  if (i >= a.count) return;
  const int64_t index = load_index(a.index, i * (a.wide != 0 ? 8 : 4), a.wide);
  if (index < 0 || index >= a.size) {
    __trap();
    return;
  }
  int64_t place = 0;
  split(a.shape, i,
        [&](int dim, int64_t c) { place += (dim == a.dim ? index : c) * a.out_strides[dim]; });
  a.places[i] = place;
}

#define CUDAEXEC_INDEX_MOVES(nbytes, Element)                                                 \
  CUDAEXEC_KERNEL(cudaexec_index_gather_##nbytes, IndexPlacesArgs, kIndexThreads) {           \
    const int64_t i = own_index();                                                            \
    if (i >= a.count) return;                                                                 \
    int64_t from = 0;                                                                         \
    int64_t to = 0;                                                                           \
    int64_t position = 0;                                                                     \
    split(a.shape, i, [&](int dim, int64_t c) {                                               \
      from += c * a.self_strides[dim];                                                        \
      to += c * a.result_strides[dim];                                                        \
      position += c * a.block_strides[dim];                                                   \
    });                                                                                       \
    *at<Element>(a.result, to) = *at<const Element>(a.self, from + a.offsets[position]);      \
  }                                                                                           \
  CUDAEXEC_KERNEL(cudaexec_write_at_##nbytes, WriteAtArgs, kIndexThreads) {                   \
    const int64_t i = own_index();                                                            \
    if (i >= a.count) return;                                                                 \
    *at<Element>(a.out, a.places[i]) =                                                        \
        static_cast<const Element*>(a.values)[a.single != 0 ? 0 : i];                         \
  }                                                                                           \
  CUDAEXEC_KERNEL(cudaexec_take_##nbytes, TakeArgs, kIndexThreads) {                          \
    const int64_t i = own_index();                                                            \
    if (i >= a.count) return;                                                                 \
    static_cast<Element*>(a.out)[i] = static_cast<const Element*>(a.source)[a.positions[i]];  \
  }                                                                                           \
  CUDAEXEC_KERNEL(cudaexec_masked_scatter_##nbytes, MaskedScatterArgs, kIndexThreads) {       \
    const int64_t i = own_index();                                                            \
    if (i >= a.count) return;                                                                 \
    const int64_t rank = a.ranks[i];                                                          \
    if (rank >= a.source_count) {                                                             \
      __trap();                                                                               \
      return;                                                                                 \
    }                                                                                         \
    static_cast<Element*>(a.out)[i] = rank < 0 ? static_cast<const Element*>(a.self)[i]       \
                                               : static_cast<const Element*>(a.source)[rank]; \
  }
CUDAEXEC_INDEX_MOVES(1, uint8_t)
CUDAEXEC_INDEX_MOVES(2, uint16_t)
CUDAEXEC_INDEX_MOVES(4, uint32_t)
CUDAEXEC_INDEX_MOVES(8, uint64_t)

#define CUDAEXEC_ADD_AT(name, T)                                                     \
  CUDAEXEC_KERNEL(cudaexec_add_at_##name, AddAtArgs, kIndexThreads) {                \
    const int64_t i = own_index();                                                   \
    if (i < a.count) {                                                               \
      add_atomically(at<T>(a.out, a.places[i]), static_cast<const T*>(a.values)[i]); \
    }                                                                                \
  }
CUDAEXEC_ADD_AT(float32, float)
CUDAEXEC_ADD_AT(float64, double)
CUDAEXEC_ADD_AT(int32, int32_t)
CUDAEXEC_ADD_AT(int64, int64_t)

#define CUDAEXEC_COMBINE_RUNS(name, T)                                            \
  CUDAEXEC_KERNEL(cudaexec_combine_runs_##name, CombineRunsArgs, kIndexThreads) { \
    combine_run<T>(a);                                                            \
  }
CUDAEXEC_ALL_TYPES(CUDAEXEC_COMBINE_RUNS)
