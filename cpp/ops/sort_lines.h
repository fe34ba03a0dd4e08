// A tensor as lines along one dimension, each contiguous, and results written back in any layout.
#pragma once

#include "ops/operand.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {

/// `tensor` with dimension `dim` moved to the end (a view); a scalar becomes [1].
inline Tensor dim_last(const Tensor& tensor, int64_t dim) {
  const size_t rank = tensor.sizes().size();
  if (rank == 0) return {tensor.storage(), tensor.offset(), Dims{1}, Dims{1}, tensor.dtype()};
  Dims sizes(rank);
  Dims strides(rank);
  size_t at = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (static_cast<int64_t>(i) == dim) continue;
    sizes[at] = tensor.size(i);
    strides[at++] = tensor.stride(i);
  }
  sizes[at] = tensor.size(static_cast<size_t>(dim));
  strides[at] = tensor.stride(static_cast<size_t>(dim));
  return {tensor.storage(), tensor.offset(), std::move(sizes), std::move(strides), tensor.dtype()};
}

/// Where the lines of a result are written: in place if they are contiguous, else in a buffer that
/// finish() copies.
class ResultLines {
 public:
  ResultLines(const Tensor& result, int64_t dim, const OpContext& context)
      : view_(dim_last(result, dim)),
        lines_(view_.is_contiguous() ? view_ : empty(view_.sizes(), view_.dtype(), context)) {}
  template <typename T>
  [[nodiscard]] T* data() const {
    return lines_.data_as<T>();
  }
  void finish() const {
    if (lines_.storage() != view_.storage()) strided_copy(view_, lines_);
  }

 private:
  Tensor view_;
  Tensor lines_;
};

}  // namespace cudaexec::ops
