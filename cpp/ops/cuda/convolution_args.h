// Arguments of the kernels in cuda/convolution.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr unsigned kConvolutionThreads = 256;
inline constexpr int kConvolutionTile = 64;   // pixels and channels of a block's tile
inline constexpr int kConvolutionDepth = 16;  // products that a tile adds up at once

/// A convolution over three spatial dimensions. Strides in elements, of [N, C, D, H, W] (weight:
/// its own first two dimensions). All counts are below 2^31.
struct ConvolutionArgs {
  const void* input;
  const void* weight;
  const void* bias;  // or null
  void* output;
  int64_t in_strides[5], weight_strides[5], out_strides[5];
  int32_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  int32_t group_in, group_out;  // channels of a group
  int32_t pixels;               // batch * output positions
  int32_t pixel_tiles, channel_tiles;
  int32_t transposed;
  int64_t outputs;  // elements
};

}  // namespace cudaexec::cuda
