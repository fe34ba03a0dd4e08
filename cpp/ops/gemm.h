// The matrix product behind every linear operator: out = alpha * A @ B + beta * add, batched, any
// strides. Packs B for register tiles, once for good where B is a constant; splits over threads.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "ops/gemm_kernels.h"
#include "ops/op_context.h"
#include "tensor/dtype.h"
#include "tensor/storage.h"

namespace cudaexec::ops {

/// Strides in elements; a stride of 0 repeats.
struct GemmOperand {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  /// Set for a constant: its storage and the offset of `data` in elements, the key of its packed
  /// form.
  Storage* constant = nullptr;
  int64_t offset = 0;
};

/// A [batch, m, k], B [batch, k, n], out and add [batch, m, n]. `add.data` null: nothing is added.
/// `add` is not read if beta is 0, A and B are not if alpha is.
/// float32, float64, float16 and bfloat16 have `out` and `add` of the same dtype and accumulate in
/// float32 (float64 in itself); int8 has an int32 `out` and no `add`.
struct GemmProblem {
  Dtype dtype = Dtype::kFloat32;
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand a, b, out, add;
  double alpha = 1.0;
  double beta = 1.0;
};

/// `out` may be `add` itself but must not overlap A or B. @throws NotSupported for other dtypes,
/// OutOfMemory for scratch memory. Thread-safe for distinct `out`.
CUDAEXEC_API void gemm(const GemmProblem& problem, const OpContext& context);
/// As above with the kernels of one instruction set, which the machine must have.
CUDAEXEC_API void gemm(const GemmProblem& problem, const OpContext& context,
                       const GemmKernelSet& kernels);

/// The best kernels for this machine.
CUDAEXEC_API const GemmKernelSet& gemm_kernels() noexcept;
/// Kernels by name ("portable", "avx2", "avx512"), or null if unknown or beyond this machine.
CUDAEXEC_API const GemmKernelSet* find_gemm_kernels(const char* name) noexcept;

}  // namespace cudaexec::ops
