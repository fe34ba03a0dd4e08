// Loops over rows of elements, compiled for several instruction sets. Plain data only: the sources
// of the higher sets include no C++ header whose inline functions could leak out.
#pragma once

#include <stdint.h>

namespace cudaexec {

/// Operands do not overlap; halves are bit patterns.
struct RowKernels {
  /// sums[i] += factor * row[i]
  void (*add_f32)(float* sums, const float* row, float factor, int64_t count);
  void (*add_f64)(double* sums, const double* row, double factor, int64_t count);
  void (*add_f16)(float* sums, const uint16_t* row, float factor, int64_t count);
  void (*add_bf16)(float* sums, const uint16_t* row, float factor, int64_t count);
  /// The sum of a[i] * b[i], in no particular order.
  float (*dot_f32)(const float* a, const float* b, int64_t count);
  double (*dot_f64)(const double* a, const double* b, int64_t count);

  void (*f16_to_f32)(float* to, const uint16_t* from, int64_t count);
  void (*f32_to_f16)(uint16_t* to, const float* from, int64_t count);
  void (*bf16_to_f32)(float* to, const uint16_t* from, int64_t count);
  void (*f32_to_bf16)(uint16_t* to, const float* from, int64_t count);

  /// to[row][column] = from[column][row] for `rows` x `columns` elements of `to`; strides in
  /// elements.
  void (*transpose_2)(uint16_t* to, int64_t to_stride, const uint16_t* from, int64_t from_stride,
                      int64_t rows, int64_t columns);
  void (*transpose_4)(uint32_t* to, int64_t to_stride, const uint32_t* from, int64_t from_stride,
                      int64_t rows, int64_t columns);
};

extern const RowKernels kRowsPortable;
extern const RowKernels kRowsAvx2;

/// The best kernels for this machine.
const RowKernels& row_kernels() noexcept;

}  // namespace cudaexec
