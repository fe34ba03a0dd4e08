// Compiled for AVX2, FMA and F16C.
#include <immintrin.h>

#include "tensor/rows.h"

namespace cudaexec {

#include "tensor/rows_common.inl"

namespace {

constexpr int64_t kBlock = 8;  // side of the squares that are transposed in registers

__m256 load_halves(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

void add_f16_row(float* sums, const uint16_t* row, float factor, int64_t count) {
  int64_t i = 0;
  const __m256 wide = _mm256_set1_ps(factor);
  for (; i + 8 <= count; i += 8) {
    const __m256 sum = _mm256_loadu_ps(sums + i);
    _mm256_storeu_ps(sums + i, _mm256_fmadd_ps(wide, load_halves(row + i), sum));
  }
  for (; i < count; ++i) sums[i] += factor * _cvtsh_ss(row[i]);
}

void f16_to_f32_row(float* to, const uint16_t* from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, load_halves(from + i));
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i]);
}

void f32_to_f16_row(uint16_t* to, const float* from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

// Eight rows of eight words become columns: pairs, then quads, then halves are exchanged.
void transpose_block(uint32_t* to, int64_t to_stride, const uint32_t* from, int64_t from_stride) {
  __m256 row[kBlock];
  __m256 pair[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    row[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * from_stride));
  }
  for (int i = 0; i < kBlock; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < kBlock; i += 4) {
    row[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    row[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
    row[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    row[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    auto* low = reinterpret_cast<float*>(to + i * to_stride);
    auto* high = reinterpret_cast<float*>(to + (i + 4) * to_stride);
    _mm256_storeu_ps(low, _mm256_permute2f128_ps(row[i], row[i + 4], 0x20));
    _mm256_storeu_ps(high, _mm256_permute2f128_ps(row[i], row[i + 4], 0x31));
  }
}

void transpose_block(uint16_t* to, int64_t to_stride, const uint16_t* from, int64_t from_stride) {
  __m128i row[kBlock];
  __m128i next[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  }
  for (int i = 0; i < 4; ++i) {  // rows i and i + 4 interleaved
    next[2 * i] = _mm_unpacklo_epi16(row[i], row[i + 4]);
    next[2 * i + 1] = _mm_unpackhi_epi16(row[i], row[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    row[2 * i] = _mm_unpacklo_epi16(next[i], next[i + 4]);
    row[2 * i + 1] = _mm_unpackhi_epi16(next[i], next[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    auto* first = reinterpret_cast<__m128i*>(to + 2 * i * to_stride);
    auto* second = reinterpret_cast<__m128i*>(to + (2 * i + 1) * to_stride);
    _mm_storeu_si128(first, _mm_unpacklo_epi16(row[i], row[i + 4]));
    _mm_storeu_si128(second, _mm_unpackhi_epi16(row[i], row[i + 4]));
  }
}

template <typename Word>
void transpose_blocks(Word* to, int64_t to_stride, const Word* from, int64_t from_stride,
                      int64_t rows, int64_t columns) {
  const int64_t whole_rows = rows / kBlock * kBlock;
  const int64_t whole_columns = columns / kBlock * kBlock;
  for (int64_t row = 0; row < whole_rows; row += kBlock) {
    for (int64_t column = 0; column < whole_columns; column += kBlock) {
      transpose_block(to + row * to_stride + column, to_stride, from + column * from_stride + row,
                      from_stride);
    }
  }
  transpose_words(to + whole_columns, to_stride, from + whole_columns * from_stride, from_stride,
                  whole_rows, columns - whole_columns);
  transpose_words(to + whole_rows * to_stride, to_stride, from + whole_rows, from_stride,
                  rows - whole_rows, columns);
}

}  // namespace

const RowKernels kRowsAvx2{
    add_row<float>,  add_row<double>, add_f16_row,      add_bf16_row,
    dot_row<float>,  dot_row<double>, f16_to_f32_row,   f32_to_f16_row,
    bf16_to_f32_row, f32_to_bf16_row, transpose_blocks, transpose_blocks,
};

}  // namespace cudaexec
