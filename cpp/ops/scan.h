// Running sums, products and extremes along a dimension. Results are contiguous.
#pragma once

#include <optional>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// Of `dtype`, to which the elements are converted first; by default int64 for integers and bool,
/// else self's. float32 adds up in float64, the half types in float32, as in torch.
CUDAEXEC_API Tensor cumsum(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
                           const OpContext& context);
CUDAEXEC_API Tensor cumprod(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
                            const OpContext& context);

/// log(cumsum(exp(self))) without overflow; floating point only.
CUDAEXEC_API Tensor logcumsumexp(const Tensor& self, int64_t dim, const OpContext& context);

/// The largest (smallest) value so far and the index of its last occurrence (int64); NaN stays.
CUDAEXEC_API std::pair<Tensor, Tensor> cummax(const Tensor& self, int64_t dim,
                                              const OpContext& context);
CUDAEXEC_API std::pair<Tensor, Tensor> cummin(const Tensor& self, int64_t dim,
                                              const OpContext& context);

}  // namespace cudaexec::ops
