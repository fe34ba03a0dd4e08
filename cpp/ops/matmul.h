// torch's matrix product operators over tensors of any strides. Floating dtypes accumulate in
// float32 (float64 in itself), integers wrap around. `out` must not overlap the factors.
#pragma once

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// out[m, n] = a[m, k] @ b[k, n]. One dtype for all. @throws ShapeError, DtypeError, OutOfMemory,
/// as all functions here.
CUDAEXEC_API void mm_out(const Tensor& out, const Tensor& a, const Tensor& b,
                         const OpContext& context);
/// out[m, n] = beta * self + alpha * a @ b; self broadcasts to [m, n] and is not read if beta is 0.
CUDAEXEC_API void addmm_out(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                            double beta, double alpha, const OpContext& context);
/// out[b, m, n] = a[b, m, k] @ b[b, k, n].
CUDAEXEC_API void bmm_out(const Tensor& out, const Tensor& a, const Tensor& b,
                          const OpContext& context);
CUDAEXEC_API void baddbmm_out(const Tensor& out, const Tensor& self, const Tensor& a,
                              const Tensor& b, double beta, double alpha, const OpContext& context);
/// int32 out[m, n] = int8 a[m, k] @ int8 b[k, n].
CUDAEXEC_API void int_mm_out(const Tensor& out, const Tensor& a, const Tensor& b,
                             const OpContext& context);
/// beta * self + alpha * mat[m, k] @ vec[k]; self broadcasts to [m]. A new tensor.
CUDAEXEC_API Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, double beta,
                          double alpha, const OpContext& context);
/// beta * self + alpha * sum over b of a[b, m, k] @ b[b, k, n]; self broadcasts to [m, n]. A new
/// tensor.
CUDAEXEC_API Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, double beta,
                           double alpha, const OpContext& context);

}  // namespace cudaexec::ops
