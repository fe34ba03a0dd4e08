// Who computes a convolution.
#pragma once

#include "ops/convolution.h"

namespace cudaexec::ops {

enum class ConvolutionEngine { kBest, kMatrix, kOnednn, kGathered };

/// By name: "best", "matrix", "onednn", "gathered". @throws InputError for others.
CUDAEXEC_API ConvolutionEngine convolution_engine(const char* name);

/// convolution() by one engine. @throws NotSupported where that engine cannot serve the problem.
CUDAEXEC_API Tensor convolution_by(ConvolutionEngine engine, const Tensor& input,
                                   const Tensor& weight, const Tensor* bias,
                                   const ConvolutionOptions& options, const OpContext& context);

/// Runs the problem; kBest takes the fastest way that this build has for it.
void run_convolution(ConvolutionEngine engine, const ConvolutionProblem& problem,
                     const OpContext& context);

/// Where the kernel is one point and touches every input once, the convolution is a matrix product.
/// Returns false, having done nothing, where it is not.
bool convolve_pointwise(const ConvolutionProblem& problem, const OpContext& context);

}  // namespace cudaexec::ops
