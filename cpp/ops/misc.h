// Operators of no larger family.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// input / sqrt(mean(input^2) + eps) * weight over the last dimensions, `normalized` of sizes, and
/// the reciprocal roots (float32, float64 for float64). No eps: the least difference from 1 of the
/// dtype that is computed in. Contiguous.
CUDAEXEC_API std::pair<Tensor, Tensor> rms_norm(const Tensor& input,
                                                std::span<const int64_t> normalized,
                                                const Tensor* weight, std::optional<double> eps,
                                                const OpContext& context);

/// A periodic Hann window, floating point.
CUDAEXEC_API Tensor hann_window(int64_t length, Dtype dtype, const OpContext& context);

/// i1 * i2 * i3 summed over the dimensions `sum`, after unsqueezing each at its `expand`
/// dimensions.
struct TrilinearOperand {
  const Tensor& tensor;
  std::span<const int64_t> expand;
};
CUDAEXEC_API Tensor trilinear(const TrilinearOperand& i1, const TrilinearOperand& i2,
                              const TrilinearOperand& i3, std::span<const int64_t> sum,
                              const OpContext& context);

struct SegmentOptions {
  std::string_view reduce;          // sum, mean, max, min or prod
  const Tensor* lengths = nullptr;  // [..., segments], or
  const Tensor* offsets = nullptr;  // [..., segments + 1]
  int64_t axis = 0;                 // of the segments; dimensions before it as in lengths
  std::optional<double> initial;    // of empty segments, and where reducing starts
};
/// Reduces segments of `data` (floating point) along `axis`. @throws InputError for segments that
/// leave it.
CUDAEXEC_API Tensor segment_reduce(const Tensor& data, const SegmentOptions& options,
                                   const OpContext& context);

}  // namespace cudaexec::ops
