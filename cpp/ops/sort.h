// Order along a dimension: sort, topk, kthvalue, mode, median. NaN counts as the largest value and
// -0 equals 0. Indices are int64.
#pragma once

#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

using ValuesAndIndices = std::pair<Tensor, Tensor>;

/// Sorted values and where they were, equal ones in their old order (in both directions). Results
/// have the strides of `self`, without gaps.
CUDAEXEC_API ValuesAndIndices sort(const Tensor& self, int64_t dim, bool descending,
                                   const OpContext& context);

/// The k largest (or smallest) values, best first; of equal ones those with lower indices.
/// Contiguous. @throws InputError unless 0 <= k <= size.
CUDAEXEC_API ValuesAndIndices topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                                   const OpContext& context);

/// The k-th smallest value, k from 1. @throws InputError for a k out of range.
CUDAEXEC_API ValuesAndIndices kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                                       const OpContext& context);

/// The most frequent value, the smallest of several, and its last index.
CUDAEXEC_API ValuesAndIndices mode(const Tensor& self, int64_t dim, bool keepdim,
                                   const OpContext& context);

/// The lower median of all elements (0-d); NaN if one is NaN, unless they are to be ignored.
CUDAEXEC_API Tensor median(const Tensor& self, bool ignore_nan, const OpContext& context);

}  // namespace cudaexec::ops
