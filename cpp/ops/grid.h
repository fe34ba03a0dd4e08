// Sampling volumes at given places.
#pragma once

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

enum class Interpolation : int64_t { kLinear = 0, kNearest = 1 };
enum class GridPadding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

/// input [n, c, d, h, w] at grid [n, d2, h2, w2, 3], whose last dimension holds x, y and z from -1
/// to 1 across the volume: [n, c, d2, h2, w2]. Floating point, one dtype.
CUDAEXEC_API Tensor grid_sampler_3d(const Tensor& input, const Tensor& grid,
                                    Interpolation interpolation, GridPadding padding,
                                    bool align_corners, const OpContext& context);

}  // namespace cudaexec::ops
