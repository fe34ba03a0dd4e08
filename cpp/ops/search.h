// Binary search in sorted values, and histograms.
#pragma once

#include <string_view>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

struct SearchOptions {
  bool out_int32 = false;          // else int64
  bool right = false;              // the position after equal values, instead of before
  const Tensor* sorter = nullptr;  // int64, sizes of the sequence: the order that sorts it
};

/// For every element of `values`, where it would go in `sequence`, whose last dimension is sorted:
/// 1-D, or with the other dimensions of `values`. Contiguous, sizes of `values`.
CUDAEXEC_API Tensor searchsorted(const Tensor& sequence, const Tensor& values,
                                 const SearchOptions& options, const OpContext& context);
/// As above for one value and a 1-D sequence; the result is 0-d.
CUDAEXEC_API Tensor searchsorted_value(const Tensor& sequence, double value,
                                       const SearchOptions& options, const OpContext& context);
/// `right` of torch's two spellings of it; `side` may be null. @throws InputError.
CUDAEXEC_API bool search_right(bool right, const char* side);

/// Counts of `bins` equal bins over [low, high], both included; low == high means the range of the
/// data. Elements outside do not count. Of self's dtype (floating point).
CUDAEXEC_API Tensor histc(const Tensor& self, int64_t bins, double low, double high,
                          const OpContext& context);

struct HistogramOptions {
  const double* range = nullptr;   // two values, or null: the range of the data
  const Tensor* weight = nullptr;  // sizes and dtype of self
  bool density = false;            // the integral over the range is 1
};
/// Counts and the bins + 1 edges.
CUDAEXEC_API std::pair<Tensor, Tensor> histogram(const Tensor& self, int64_t bins,
                                                 const HistogramOptions& options,
                                                 const OpContext& context);

}  // namespace cudaexec::ops
