#include "tensor/half.h"
#include "tensor/rows.h"

namespace cudaexec {

#include "tensor/rows_common.inl"

namespace {

void add_f16_row(float* sums, const uint16_t* row, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += factor * half_bits_to_float(row[i]);
}

void f16_to_f32_row(float* to, const uint16_t* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = half_bits_to_float(from[i]);
}

void f32_to_f16_row(uint16_t* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_half_bits(from[i]);
}

bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

const RowKernels kRowsPortable{
    add_row<float>,  add_row<double>, add_f16_row,     add_bf16_row,
    dot_row<float>,  dot_row<double>, f16_to_f32_row,  f32_to_f16_row,
    bf16_to_f32_row, f32_to_bf16_row, transpose_words, transpose_words,
};

const RowKernels& row_kernels() noexcept {
  static const RowKernels& best = has_avx2() ? kRowsAvx2 : kRowsPortable;
  return best;
}

}  // namespace cudaexec
