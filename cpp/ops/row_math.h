// The row kernels by element type.
#pragma once

#include "tensor/convert.h"
#include "tensor/rows.h"

namespace cudaexec::ops {

/// What sums of T are kept in by add_scaled().
template <typename T>
using RowSum = std::conditional_t<kIsReduced<T>, float, T>;

/// sums[i] += factor * row[i]; floating point.
template <typename T>
void add_scaled(RowSum<T>* sums, const T* row, RowSum<T> factor, int64_t count) {
  const RowKernels& kernels = row_kernels();
  if constexpr (std::is_same_v<T, Half>) {
    kernels.add_f16(sums, &row->bits, factor, count);
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    kernels.add_bf16(sums, &row->bits, factor, count);
  } else if constexpr (std::is_same_v<T, float>) {
    kernels.add_f32(sums, row, factor, count);
  } else {
    kernels.add_f64(sums, row, factor, count);
  }
}

}  // namespace cudaexec::ops
