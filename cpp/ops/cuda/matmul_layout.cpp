#include "ops/cuda/matmul_layout.h"

#include <algorithm>

namespace cudaexec::gpu {

std::optional<ColumnMajor> as_columns(const MatrixView& view) noexcept {
  const int64_t rows = std::max<int64_t>(view.rows, 1);
  if (view.row_stride != 1 && view.rows > 1) return std::nullopt;
  const int64_t leading = view.cols > 1 ? view.col_stride : rows;
  if (leading < rows) return std::nullopt;
  return ColumnMajor{view.rows, view.cols, leading, false};
}

std::optional<ColumnMajor> column_major(const MatrixView& view) noexcept {
  if (std::optional<ColumnMajor> rows = as_columns(view.transposed())) {
    rows->transposed = true;
    return rows;
  }
  return as_columns(view);
}

}  // namespace cudaexec::gpu
