// Distances between rows.
#pragma once

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// How torch.cdist may compute Euclidean distances.
enum class CdistMode : int64_t { kProductIfLarge = 0, kProduct = 1, kDirect = 2 };

/// The p-norm of x1[..., i, :] - x2[..., j, :]: x1 [..., rows1, width], x2 [..., rows2, width] give
/// [..., rows1, rows2]; leading dimensions broadcast. float32 or float64, one dtype.
/// @throws InputError for a negative p.
CUDAEXEC_API Tensor cdist(const Tensor& x1, const Tensor& x2, double p, CdistMode mode,
                          const OpContext& context);
/// The p-norms between all pairs i < j of rows of x [rows, width], in that order.
CUDAEXEC_API Tensor pdist(const Tensor& x, double p, const OpContext& context);

}  // namespace cudaexec::ops
