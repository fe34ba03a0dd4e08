// torch's convolution over 1 to 3 spatial dimensions, transposed or not.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// One entry for each spatial dimension, or one entry for all.
struct ConvolutionOptions {
  std::span<const int64_t> stride;
  std::span<const int64_t> padding;
  std::span<const int64_t> dilation;
  bool transposed = false;
  std::span<const int64_t> output_padding;  // of transposed convolutions
  int64_t groups = 1;
};

/// input [N, C, *spatial] or [C, *spatial], weight [O, C / groups, *kernel] (transposed:
/// [C, O / groups, *kernel]), bias [O] or null; one dtype for all. A new tensor with torch's
/// strides: channels last where the input or the weight is.
/// @throws ShapeError, DtypeError, DeviceError, OutOfMemory. Thread-safe.
CUDAEXEC_API Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                                const ConvolutionOptions& options, const OpContext& context);

/// A checked convolution in three spatial dimensions; those that are not there have size 1.
struct ConvolutionProblem {
  using Axes = std::array<int64_t, 3>;
  Dtype dtype;
  bool transposed;
  int64_t spatial;  // 1, 2 or 3
  int64_t batch, groups;
  int64_t in_channels, out_channels;  // of all groups
  Axes in, out, kernel;               // sizes
  Axes stride, dilation, padding;
  // Strides in elements: [N, C, D, H, W] of input and output; weight as torch has it.
  std::array<int64_t, 5> in_strides, out_strides, weight_strides;
  const void* input;
  const void* weight;
  const void* bias;  // contiguous; or null
  void* output;
  Storage* constant;      // of the weight, if it is a constant
  int64_t weight_offset;  // in elements of its storage

  [[nodiscard]] int64_t group_in() const noexcept { return in_channels / groups; }
  [[nodiscard]] int64_t group_out() const noexcept { return out_channels / groups; }
  [[nodiscard]] int64_t positions_in() const noexcept { return in[0] * in[1] * in[2]; }
  [[nodiscard]] int64_t positions_out() const noexcept { return out[0] * out[1] * out[2]; }
  [[nodiscard]] int64_t taps() const noexcept { return kernel[0] * kernel[1] * kernel[2]; }
};

/// Checks the operands and fills all of `problem` but the addresses and the output's strides.
/// Returns the sizes of the output.
CUDAEXEC_API Dims plan_convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                                   const ConvolutionOptions& options, ConvolutionProblem& problem);
/// torch's strides of the output; volumes are channels last only with `volumes_keep_format`.
CUDAEXEC_API Dims convolution_strides(const Tensor& input, const Tensor& weight,
                                      bool volumes_keep_format, const Dims& sizes);
CUDAEXEC_API void set_convolution_output(ConvolutionProblem& problem, const Tensor& output);
/// Calls `convolve` with a batch: `input`, or `input` as a batch of one, whose result then loses
/// it.
CUDAEXEC_API Tensor convolve_with_batch(const Tensor& input, const Tensor& weight,
                                        const std::function<Tensor(const Tensor& batch)>& convolve);

/// By matrix products over gathered inputs: every dtype, no other library.
CUDAEXEC_API void convolve_gathered(const ConvolutionProblem& problem, const OpContext& context);

}  // namespace cudaexec::ops
