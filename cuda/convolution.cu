// Convolutions of any kind, grouped, dilated, transposed, in up to three dimensions: as matrix
// products of gathered inputs through tiles in shared memory, and, where groups are small, one
// thread per output. Driven by cpp/ops/cuda/convolution.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/convolution_args.h"

namespace cudaexec::cuda {
namespace {

constexpr int kEach = 4;  // pixels and channels of a thread

struct Pixel {
  int32_t image, z, y, x;
};

__device__ __forceinline__ Pixel pixel_at(const ConvolutionArgs& a, int32_t index) {
  Pixel p;
  p.x = index % a.out[2];
  index /= a.out[2];
  p.y = index % a.out[1];
  index /= a.out[1];
  p.z = index % a.out[0];
  p.image = index / a.out[0];
  return p;
}

/// The input position that a tap of an output position reads; false if there is none.
__device__ __forceinline__ bool source_at(const ConvolutionArgs& a, int dim, int32_t out,
                                          int32_t tap, int32_t* in) {
  if (a.transposed == 0) {
    *in = out * a.stride[dim] - a.padding[dim] + tap * a.dilation[dim];
  } else {
    const int32_t spread = out + a.padding[dim] - tap * a.dilation[dim];
    if (spread < 0 || spread % a.stride[dim] != 0) return false;
    *in = spread / a.stride[dim];
  }
  return *in >= 0 && *in < a.in[dim];
}

struct Tap {
  int32_t channel, z, y, x;
};

__device__ __forceinline__ Tap tap_at(const ConvolutionArgs& a, int32_t index) {
  Tap t;
  t.x = index % a.kernel[2];
  index /= a.kernel[2];
  t.y = index % a.kernel[1];
  index /= a.kernel[1];
  t.z = index % a.kernel[0];
  t.channel = index / a.kernel[0];
  return t;
}

template <typename T>
__device__ __forceinline__ Wide<T> load_input(const ConvolutionArgs& a, const Pixel& p,
                                              const Tap& t, int32_t first_channel) {
  int32_t z, y, x;
  if (!source_at(a, 0, p.z, t.z, &z) || !source_at(a, 1, p.y, t.y, &y) ||
      !source_at(a, 2, p.x, t.x, &x)) {
    return 0;
  }
  const int64_t at = p.image * a.in_strides[0] + (first_channel + t.channel) * a.in_strides[1] +
                     z * a.in_strides[2] + y * a.in_strides[3] + x * a.in_strides[4];
  return widen(static_cast<const T*>(a.input)[at]);
}

/// Weights are [out, in of group] or, transposed, [in, out of group].
template <typename T>
__device__ __forceinline__ Wide<T> load_weight(const ConvolutionArgs& a, const Tap& t,
                                               int32_t group, int32_t out_channel) {
  const int64_t first =
      a.transposed != 0 ? group * a.group_in + t.channel : group * a.group_out + out_channel;
  const int64_t second = a.transposed != 0 ? out_channel : t.channel;
  const int64_t at = first * a.weight_strides[0] + second * a.weight_strides[1] +
                     t.z * a.weight_strides[2] + t.y * a.weight_strides[3] +
                     t.x * a.weight_strides[4];
  return widen(static_cast<const T*>(a.weight)[at]);
}

template <typename T>
__device__ __forceinline__ void store_output(const ConvolutionArgs& a, const Pixel& p,
                                             int32_t channel, Wide<T> value) {
  if (a.bias != nullptr) value += widen(static_cast<const T*>(a.bias)[channel]);
  const int64_t at = p.image * a.out_strides[0] + channel * a.out_strides[1] +
                     p.z * a.out_strides[2] + p.y * a.out_strides[3] + p.x * a.out_strides[4];
  static_cast<T*>(a.output)[at] = narrow(value, T{});
}

__device__ __forceinline__ int32_t taps_of(const ConvolutionArgs& a) {
  return a.group_in * a.kernel[0] * a.kernel[1] * a.kernel[2];
}

template <typename W>
struct Tiles {
  W inputs[kConvolutionDepth][kConvolutionTile];
  W weights[kConvolutionDepth][kConvolutionTile];
};

template <typename T>
__device__ __forceinline__ void convolve_tile(const ConvolutionArgs& a, Tiles<Wide<T>>& tiles) {
  using W = Wide<T>;
  int32_t block = static_cast<int32_t>(blockIdx.x);
  const int32_t first_channel = block % a.channel_tiles * kConvolutionTile;
  block /= a.channel_tiles;
  const int32_t first_pixel = block % a.pixel_tiles * kConvolutionTile;
  const int32_t group = block / a.pixel_tiles;
  const int32_t depth = taps_of(a);
  // Loading: a thread has one column of the tiles and every fourth row.
  const auto column = static_cast<int32_t>(threadIdx.x) % kConvolutionTile;
  const auto first_row = static_cast<int32_t>(threadIdx.x) / kConvolutionTile;
  const bool has_pixel = first_pixel + column < a.pixels;
  const bool has_channel = first_channel + column < a.group_out;
  const Pixel own = pixel_at(a, has_pixel ? first_pixel + column : 0);
  // Adding up: a thread has 4 x 4 outputs.
  const int32_t pixel = static_cast<int32_t>(threadIdx.x) % (kConvolutionTile / kEach) * kEach;
  const int32_t channel = static_cast<int32_t>(threadIdx.x) / (kConvolutionTile / kEach) * kEach;
  W sums[kEach][kEach] = {};
  for (int32_t k = 0; k < depth; k += kConvolutionDepth) {
    for (int32_t row = first_row; row < kConvolutionDepth;
         row += static_cast<int32_t>(kConvolutionThreads) / kConvolutionTile) {
      const bool inside = k + row < depth;
      const Tap tap = tap_at(a, inside ? k + row : 0);
      tiles.inputs[row][column] =
          inside && has_pixel ? load_input<T>(a, own, tap, group * a.group_in) : 0;
      tiles.weights[row][column] =
          inside && has_channel ? load_weight<T>(a, tap, group, first_channel + column) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < kConvolutionDepth; ++row) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sums[i][j] += tiles.inputs[row][pixel + i] * tiles.weights[row][channel + j];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first_pixel + pixel + i >= a.pixels) break;
    const Pixel p = pixel_at(a, first_pixel + pixel + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int32_t c = first_channel + channel + j;
      if (c < a.group_out) store_output<T>(a, p, group * a.group_out + c, sums[i][j]);
    }
  }
}

/// Neighbouring threads have neighbouring outputs in memory: channels or positions innermost.
template <typename T>
__device__ __forceinline__ void convolve_one(const ConvolutionArgs& a) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kConvolutionThreads + threadIdx.x;
  if (item >= a.outputs) return;
  const int64_t channels = a.outputs / a.pixels;
  const int64_t positions = a.pixels;
  const bool channels_inside = a.out_strides[1] == 1;
  const int64_t inner = channels_inside ? channels : positions;
  const int64_t outer_index = item / inner;
  const int64_t inner_index = item - outer_index * inner;
  const auto c = static_cast<int32_t>(channels_inside ? inner_index : outer_index);
  const Pixel p = pixel_at(a, static_cast<int32_t>(channels_inside ? outer_index : inner_index));
  const int32_t group = c / a.group_out;
  Wide<T> sum = 0;
  Tap tap;
  for (tap.channel = 0; tap.channel < a.group_in; ++tap.channel) {
    for (tap.z = 0; tap.z < a.kernel[0]; ++tap.z) {
      for (tap.y = 0; tap.y < a.kernel[1]; ++tap.y) {
        for (tap.x = 0; tap.x < a.kernel[2]; ++tap.x) {
          sum += load_input<T>(a, p, tap, group * a.group_in) *
                 load_weight<T>(a, tap, group, c - group * a.group_out);
        }
      }
    }
  }
  store_output<T>(a, p, c, sum);
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_CONVOLUTION(name, T)                                                        \
  CUDAEXEC_KERNEL(cudaexec_convolution_tiles_##name, ConvolutionArgs, kConvolutionThreads) { \
    __shared__ Tiles<Wide<T>> tiles;                                                         \
    convolve_tile<T>(a, tiles);                                                              \
  }                                                                                          \
  CUDAEXEC_KERNEL(cudaexec_convolution_each_##name, ConvolutionArgs, kConvolutionThreads) {  \
    convolve_one<T>(a);                                                                      \
  }
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_CONVOLUTION)
