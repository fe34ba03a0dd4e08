// How a product of strided matrices is put to cuBLAS, which knows column-major matrices with a
// leading dimension and their transposes. Pure arithmetic; no call of any library.
#pragma once

#include <cstdint>
#include <optional>

#include "base/export.h"

namespace cudaexec::gpu {

/// A batch of matrices; strides in elements.
struct MatrixView {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  [[nodiscard]] MatrixView transposed() const noexcept {
    return {cols, rows, col_stride, row_stride};
  }
  friend bool operator==(const MatrixView&, const MatrixView&) = default;
};

/// A column-major matrix of `rows` x `cols` whose columns are `leading` elements apart, used as it
/// is or transposed.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t leading = 0;
  bool transposed = false;
};

/// Nothing where no dimension is contiguous, or elements overlap: the matrix has to be copied
/// first. Strides of dimensions of size 1 do not matter. Where both readings fit, rows contiguous
/// (transposed) wins.
CUDAEXEC_API std::optional<ColumnMajor> column_major(const MatrixView& view) noexcept;

/// The reading of `view` as a column-major matrix that is not transposed.
CUDAEXEC_API std::optional<ColumnMajor> as_columns(const MatrixView& view) noexcept;

}  // namespace cudaexec::gpu
