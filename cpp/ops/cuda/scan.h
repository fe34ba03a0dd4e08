// Running sums, products and extremes on GPUs: as ops/scan.h, but float32 adds up in float32.
#pragma once

#include <optional>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

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

}  // namespace cudaexec::gpu
