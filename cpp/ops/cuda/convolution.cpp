#include "ops/cuda/convolution.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/convolution_args.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kOp = "convolution";
constexpr int64_t kMinTileChannels = 16;  // of a group's outputs, for tiles to pay

void put_axes(int32_t (&to)[3], const ops::ConvolutionProblem::Axes& from) {
  for (size_t i = 0; i < 3; ++i) to[i] = static_cast<int32_t>(from[i]);
}

/// Every number that kernels keep in 32 bits, with room for what they add to positions.
void require_narrow(const ops::ConvolutionProblem& p, const Tensor& input, const Tensor& weight) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  int64_t largest = std::max(
      {p.batch * p.positions_out(), p.group_in() * p.taps(), p.in_channels, p.out_channels});
  for (size_t i = 0; i < 3; ++i) {
    largest = std::max({largest, p.out[i] * p.stride[i] + p.kernel[i] * p.dilation[i],
                        p.out[i] + p.padding[i], p.in[i]});
  }
  if (largest <= kLimit) return;
  throw NotSupported(str(kOp, ": input ", describe(input), " and weight ", describe(weight),
                         ": positions beyond ", kLimit, "; split the batch"));
}

cuda::ConvolutionArgs make_args(const ops::ConvolutionProblem& p) {
  cuda::ConvolutionArgs args{};
  args.input = p.input;
  args.weight = p.weight;
  args.bias = p.bias;
  args.output = p.output;
  std::copy(p.in_strides.begin(), p.in_strides.end(), args.in_strides);
  std::copy(p.weight_strides.begin(), p.weight_strides.end(), args.weight_strides);
  std::copy(p.out_strides.begin(), p.out_strides.end(), args.out_strides);
  put_axes(args.in, p.in);
  put_axes(args.out, p.out);
  put_axes(args.kernel, p.kernel);
  put_axes(args.stride, p.stride);
  put_axes(args.padding, p.padding);
  put_axes(args.dilation, p.dilation);
  args.group_in = static_cast<int32_t>(p.group_in());
  args.group_out = static_cast<int32_t>(p.group_out());
  args.pixels = static_cast<int32_t>(p.batch * p.positions_out());
  args.pixel_tiles = static_cast<int32_t>(blocks_for(args.pixels, cuda::kConvolutionTile));
  args.channel_tiles = static_cast<int32_t>(blocks_for(args.group_out, cuda::kConvolutionTile));
  args.transposed = p.transposed;
  args.outputs = p.batch * p.out_channels * p.positions_out();
  return args;
}

Tensor convolve_batch(CudaDevice& device, const Tensor& input, const Tensor& weight,
                      const Tensor* bias, const ops::ConvolutionOptions& options,
                      const OpContext& context) {
  ops::require_floating(kOp, "input", input);
  ops::ConvolutionProblem p{};
  const Dims sizes = ops::plan_convolution(input, weight, bias, options, p);
  Tensor output = empty_strided(device, sizes, ops::convolution_strides(input, weight, true, sizes),
                                p.dtype, context);
  if (output.numel() == 0) return output;
  ops::set_convolution_output(p, output);
  require_narrow(p, input, weight);
  const Tensor packed_bias = bias != nullptr ? contiguous(device, *bias, context) : Tensor();
  p.input = input.data();
  p.weight = weight.data();
  p.bias = bias != nullptr ? packed_bias.data() : nullptr;
  const cuda::ConvolutionArgs args = make_args(p);
  const bool tiles = p.group_out() >= kMinTileChannels;
  const int64_t blocks =
      tiles ? p.groups * args.pixel_tiles * args.channel_tiles : blocks_for(args.outputs);
  launch(device, "convolution",
         str("cudaexec_convolution_", tiles ? "tiles_" : "each_", dtype_name(p.dtype)), args,
         blocks, context.stream, cuda::kConvolutionThreads);
  return output;
}

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                   const ops::ConvolutionOptions& options, const OpContext& context) {
  CudaDevice& device = common_device(kOp, {{"input", &input}, {"weight", &weight}});
  if (bias != nullptr) common_device(kOp, {{"input", &input}, {"bias", bias}});
  return ops::convolve_with_batch(input, weight, [&](const Tensor& batch) {
    return convolve_batch(device, batch, weight, bias, options, context);
  });
}

}  // namespace cudaexec::gpu
