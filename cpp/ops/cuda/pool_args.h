// Arguments of the kernels in cuda/pool.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr unsigned kPoolThreads = 256;

/// Windows along one dimension.
struct PoolAxis {
  int32_t size = 1, out = 1;
  int32_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  int32_t adaptive = 0;  // windows divide `size` evenly instead
};

/// One thread per place of the result. Strides in elements, of [plane outer, channel, D, H, W].
struct PoolArgs {
  const void* input;
  void* values;
  int64_t* indices;  // of maxima, in the pooled plane; null for means
  int64_t count;     // elements of the result
  int64_t channels;
  PoolAxis axes[3];
  int64_t in_strides[5], out_strides[5];
  int32_t count_include_pad;
  int64_t divisor;  // of means; 0: the number of elements
};

/// int32 out[m, n] = int8 a[m, k] @ int8 b[k, n]; strides in elements.
struct IntegerProductArgs {
  const int8_t* a;
  const int8_t* b;
  int32_t* out;
  int64_t m, n, k;
  int64_t a_strides[2], b_strides[2], out_strides[2];
  int64_t row_tiles;
};
inline constexpr int kIntegerTile = 16;  // sides of a block's tile; one thread per element

}  // namespace cudaexec::cuda
