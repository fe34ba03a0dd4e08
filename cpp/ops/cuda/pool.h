// Pooling on GPUs: as ops/pool.h. Nothing waits.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "base/export.h"
#include "ops/pool.h"

namespace cudaexec::gpu {

CUDAEXEC_API std::pair<Tensor, Tensor> max_pool(const Tensor& self, size_t rank,
                                                const ops::PoolWindow& window,
                                                const OpContext& context);
CUDAEXEC_API Tensor avg_pool(const Tensor& self, size_t rank, const ops::PoolWindow& window,
                             bool count_include_pad, std::optional<int64_t> divisor,
                             const OpContext& context);
CUDAEXEC_API Tensor adaptive_avg_pool(const Tensor& self, std::span<const int64_t> output,
                                      const OpContext& context);
CUDAEXEC_API std::pair<Tensor, Tensor> adaptive_max_pool(const Tensor& self,
                                                         std::span<const int64_t> output,
                                                         const OpContext& context);

/// int32 out[m, n] = int8 a[m, k] @ int8 b[k, n].
CUDAEXEC_API void int_mm_out(const Tensor& out, const Tensor& a, const Tensor& b,
                             const OpContext& context);

}  // namespace cudaexec::gpu
