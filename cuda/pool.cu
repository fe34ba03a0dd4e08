// Maxima and means over windows. Driven by cpp/ops/cuda/pool.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/pool_args.h"

namespace cudaexec::cuda {
namespace {

struct Window {
  int32_t begin, end;  // inside of the input
  int32_t padded;      // length with the padding that it reaches into
};

__device__ __forceinline__ int32_t smaller(int32_t x, int32_t y) { return x < y ? x : y; }

__device__ __forceinline__ Window window_at(const PoolAxis& axis, int32_t index) {
  Window w;
  if (axis.adaptive != 0) {
    w.begin = static_cast<int32_t>(static_cast<int64_t>(index) * axis.size / axis.out);
    w.end = static_cast<int32_t>(((static_cast<int64_t>(index) + 1) * axis.size + axis.out - 1) /
                                 axis.out);
    w.padded = w.end - w.begin;
    return w;
  }
  const int32_t start = index * axis.stride - axis.padding;
  const int32_t skipped =
      start < 0 ? (-start + axis.dilation - 1) / axis.dilation * axis.dilation : 0;
  w.begin = start + skipped;
  w.end = smaller(start + axis.dilation * (axis.kernel - 1) + 1, axis.size);
  w.padded = smaller(start + axis.kernel, axis.size + axis.padding) - start;
  return w;
}

/// Calls visit(value, position in the plane) for the elements of a window, row-major.
template <typename T, typename Visit>
__device__ __forceinline__ void for_elements(const PoolArgs& a, const T* plane,
                                             const Window (&windows)[3], const Visit& visit) {
  for (int32_t d = windows[0].begin; d < windows[0].end; d += a.axes[0].dilation) {
    for (int32_t h = windows[1].begin; h < windows[1].end; h += a.axes[1].dilation) {
      for (int32_t w = windows[2].begin; w < windows[2].end; w += a.axes[2].dilation) {
        const int64_t at = d * a.in_strides[2] + h * a.in_strides[3] + w * a.in_strides[4];
        visit(widen(plane[at]),
              (static_cast<int64_t>(d) * a.axes[1].size + h) * a.axes[2].size + w);
      }
    }
  }
}

template <typename T, typename Finish>
__device__ __forceinline__ void for_own_window(const PoolArgs& a, const Finish& finish) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (index >= a.count) return;
  int32_t place[3];
  // Channels innermost where memory has them so.
  const bool channels_inside = a.out_strides[1] == 1 && a.channels > 1;
  int64_t channel = 0;
  if (channels_inside) {
    channel = index % a.channels;
    index /= a.channels;
  }
  for (int dim = 2; dim >= 0; --dim) {
    place[dim] = static_cast<int32_t>(index % a.axes[dim].out);
    index /= a.axes[dim].out;
  }
  if (!channels_inside) {
    channel = index % a.channels;
    index /= a.channels;
  }
  const Window windows[3] = {window_at(a.axes[0], place[0]), window_at(a.axes[1], place[1]),
                             window_at(a.axes[2], place[2])};
  const T* plane =
      static_cast<const T*>(a.input) + index * a.in_strides[0] + channel * a.in_strides[1];
  const int64_t to = index * a.out_strides[0] + channel * a.out_strides[1] +
                     place[0] * a.out_strides[2] + place[1] * a.out_strides[3] +
                     place[2] * a.out_strides[4];
  finish(plane, windows, to);
}

template <typename T>
__device__ __forceinline__ void max_window(const PoolArgs& a) {
  for_own_window<T>(a, [&](const T* plane, const Window(&windows)[3], int64_t to) {
    bool first = true;
    Wide<T> best = 0;
    int64_t best_at = 0;
    for_elements(a, plane, windows, [&](Wide<T> value, int64_t position) {
      if (first || value > best || is_nan(value)) {
        best = value;
        best_at = position;
      }
      first = false;
    });
    static_cast<T*>(a.values)[to] = narrow(best, T{});
    a.indices[to] = best_at;
  });
}

template <typename T>
__device__ __forceinline__ void mean_window(const PoolArgs& a) {
  for_own_window<T>(a, [&](const T* plane, const Window(&windows)[3], int64_t to) {
    Wide<T> sum = 0;
    int64_t found = 0;
    for_elements(a, plane, windows, [&](Wide<T> value, int64_t) {
      sum += value;
      ++found;
    });
    int64_t divisor = found;
    if (a.count_include_pad != 0) {
      divisor = static_cast<int64_t>(windows[0].padded) * windows[1].padded * windows[2].padded;
    }
    if (a.divisor != 0) divisor = a.divisor;
    static_cast<T*>(a.values)[to] = narrow(sum / static_cast<Wide<T>>(divisor), T{});
  });
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_MAX_POOL(name, T) \
  CUDAEXEC_KERNEL(cudaexec_max_pool_##name, PoolArgs, kPoolThreads) { max_window<T>(a); }
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_MAX_POOL)
CUDAEXEC_INTEGER_TYPES(CUDAEXEC_MAX_POOL)
#define CUDAEXEC_AVG_POOL(name, T) \
  CUDAEXEC_KERNEL(cudaexec_avg_pool_##name, PoolArgs, kPoolThreads) { mean_window<T>(a); }
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_AVG_POOL)

CUDAEXEC_KERNEL(cudaexec_integer_product, IntegerProductArgs, kIntegerTile* kIntegerTile) {
  __shared__ int8_t left[kIntegerTile][kIntegerTile + 4];
  __shared__ int8_t right[kIntegerTile][kIntegerTile + 4];
  const int x = static_cast<int>(threadIdx.x) % kIntegerTile;
  const int y = static_cast<int>(threadIdx.x) / kIntegerTile;
  const int64_t first_row = blockIdx.x % a.row_tiles * kIntegerTile;
  const int64_t first_col = blockIdx.x / a.row_tiles * kIntegerTile;
  int32_t sum = 0;
  for (int64_t k = 0; k < a.k; k += kIntegerTile) {
    left[y][x] = first_row + y < a.m && k + x < a.k
                     ? a.a[(first_row + y) * a.a_strides[0] + (k + x) * a.a_strides[1]]
                     : int8_t{0};
    right[y][x] = k + y < a.k && first_col + x < a.n
                      ? a.b[(k + y) * a.b_strides[0] + (first_col + x) * a.b_strides[1]]
                      : int8_t{0};
    __syncthreads();
    for (int i = 0; i < kIntegerTile; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  if (first_row + y < a.m && first_col + x < a.n) {
    a.out[(first_row + y) * a.out_strides[0] + (first_col + x) * a.out_strides[1]] = sum;
  }
}
