#include "ops/gemm.h"

#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "ops/gemm_run.h"

namespace cudaexec::ops {
namespace {

/// Replaces out = A B by out^T = B^T A^T.
void swap_sides(GemmProblem& p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  for (GemmOperand* operand : {&p.a, &p.b, &p.out, &p.add}) {
    std::swap(operand->row_stride, operand->col_stride);
  }
}

/// Puts a constant (packed once) on the right, makes one column one row, and out row-major.
void choose_sides(GemmProblem& p) {
  if (p.m == 1) return;
  const bool a_constant = p.a.constant != nullptr, b_constant = p.b.constant != nullptr;
  const bool column_major_out = p.out.row_stride == 1 && p.out.col_stride != 1;
  if (p.n == 1 || (a_constant && !b_constant) || (a_constant == b_constant && column_major_out)) {
    swap_sides(p);
  }
}

/// No product: only `add` is left.
template <typename Acc>
void fill_result(const GemmProblem& p, const GemmKernel<Acc>& kernel, int64_t out_size) {
  constexpr int64_t kCols = 64;
  const Acc zeros[kCols] = {};
  for (int64_t item = 0; item < p.batch; ++item) {
    for (int64_t col = 0; col < p.n; col += kCols) {
      const char* add = static_cast<const char*>(p.add.data);
      if (add != nullptr) add += gemm_offset(p.add, item, 0, col, out_size);
      kernel.finish({zeros, 0, p.m, std::min(kCols, p.n - col),
                     static_cast<char*>(p.out.data) + gemm_offset(p.out, item, 0, col, out_size),
                     p.out.row_stride, p.out.col_stride, add, p.add.row_stride, p.add.col_stride,
                     Acc{0}, static_cast<Acc>(p.beta)});
    }
  }
}

template <typename Acc>
void run(const GemmProblem& problem, const OpContext& context, const GemmKernel<Acc>& kernel) {
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) return;
  GemmProblem p = problem;
  if (p.beta == 0.0) p.add.data = nullptr;
  const auto out_size =
      static_cast<int64_t>(p.dtype == Dtype::kInt8 ? sizeof(int32_t) : dtype_size(p.dtype));
  if (p.k == 0 || p.alpha == 0.0) return fill_result(p, kernel, out_size);
  choose_sides(p);
  if (p.m == 1 && (p.b.row_stride == 1 || p.b.col_stride == 1)) {
    return gemm_row(p, context, kernel);
  }
  GemmRun<Acc>(p, context, kernel, out_size).run();
}

}  // namespace

void gemm(const GemmProblem& problem, const OpContext& context, const GemmKernelSet& kernels) {
  switch (problem.dtype) {
    case Dtype::kFloat32:
      return run(problem, context, kernels.f32);
    case Dtype::kFloat64:
      return run(problem, context, kernels.f64);
    case Dtype::kFloat16:
      return run(problem, context, kernels.f16);
    case Dtype::kBfloat16:
      return run(problem, context, kernels.bf16);
    case Dtype::kInt8:
      return run(problem, context, kernels.i8);
    default:
      throw NotSupported(str("matrix product: no kernel for ", dtype_name(problem.dtype)));
  }
}

void gemm(const GemmProblem& problem, const OpContext& context) {
  gemm(problem, context, gemm_kernels());
}

}  // namespace cudaexec::ops
