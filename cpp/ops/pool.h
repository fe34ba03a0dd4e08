// Pooling over the last two or three dimensions; before them a channel dimension and optionally a
// batch. Results in two dimensions, and max_pool's in three, keep the memory format of the input,
// as torch's do; others are contiguous.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// One entry per pooled dimension, or one for all; no stride means the kernel size.
struct PoolWindow {
  std::span<const int64_t> kernel;
  std::span<const int64_t> stride;
  std::span<const int64_t> padding;
  std::span<const int64_t> dilation;  // empty: 1
  bool ceil_mode = false;
};

/// Maxima and their positions in the pooled plane or volume (int64). NaN counts as the largest.
/// `rank` is 2 or 3. @throws ShapeError, InputError, DtypeError.
CUDAEXEC_API std::pair<Tensor, Tensor> max_pool(const Tensor& self, size_t rank,
                                                const PoolWindow& window, const OpContext& context);
/// Means; `divisor` replaces the number of elements.
CUDAEXEC_API Tensor avg_pool(const Tensor& self, size_t rank, const PoolWindow& window,
                             bool count_include_pad, std::optional<int64_t> divisor,
                             const OpContext& context);
/// Means over windows that divide the input evenly into `output` places.
CUDAEXEC_API Tensor adaptive_avg_pool(const Tensor& self, std::span<const int64_t> output,
                                      const OpContext& context);
CUDAEXEC_API std::pair<Tensor, Tensor> adaptive_max_pool(const Tensor& self,
                                                         std::span<const int64_t> output,
                                                         const OpContext& context);
/// Maxima of `kernel`-sized windows at pseudo-random places, which `samples` [batch, channels,
/// rank] (last dimension first in two dimensions) choose.
CUDAEXEC_API std::pair<Tensor, Tensor> fractional_max_pool(const Tensor& self,
                                                           std::span<const int64_t> kernel,
                                                           std::span<const int64_t> output,
                                                           const Tensor& samples,
                                                           const OpContext& context);
/// Zeros of plane or volume size `output` with self's elements at `indices`.
/// @throws InputError for an index out of range.
CUDAEXEC_API Tensor max_unpool(const Tensor& self, const Tensor& indices,
                               std::span<const int64_t> output, const OpContext& context);

}  // namespace cudaexec::ops
