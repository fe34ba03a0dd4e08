// Running sums and products on GPUs: as ops/scan.h, but float32 adds up in float32.
#pragma once

#include <optional>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

CUDAEXEC_API Tensor cumsum(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
                           const OpContext& context);
CUDAEXEC_API Tensor cumprod(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
                            const OpContext& context);

}  // namespace cudaexec::gpu
