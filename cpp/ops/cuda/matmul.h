// torch's matrix products of tensors on one GPU, by cuBLASLt. float16, bfloat16, float32 (without
// TensorFloat-32) and float64, of any strides: operands that cuBLAS cannot read are copied first.
// All work is put on the context's stream; nothing waits. `out` must not overlap the factors.
#pragma once

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

/// out[m, n] = a[m, k] @ b[k, n]. @throws ShapeError, DtypeError, DeviceError, NotSupported
/// (no cuBLAS), CaptureError, OutOfMemory, as all functions here.
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
/// beta * self + alpha * mat[m, k] @ vec[k]; self broadcasts to [m]. A new tensor.
CUDAEXEC_API Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, double beta,
                          double alpha, const OpContext& context);
/// beta * self + alpha * sum over b of a[b, m, k] @ b[b, k, n]. A new tensor.
CUDAEXEC_API Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, double beta,
                           double alpha, const OpContext& context);

}  // namespace cudaexec::gpu
