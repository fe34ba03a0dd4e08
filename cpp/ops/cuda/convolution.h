// torch's convolution on GPUs, by kernels of our own.
#pragma once

#include "base/export.h"
#include "ops/convolution.h"

namespace cudaexec::gpu {

/// As ops/convolution.h; float16, bfloat16 (added up in float32), float32, float64. Channels last
/// where the input or the weight is. Nothing waits.
CUDAEXEC_API Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                                const ops::ConvolutionOptions& options, const OpContext& context);

}  // namespace cudaexec::gpu
