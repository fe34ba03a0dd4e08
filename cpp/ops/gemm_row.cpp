// Products of one row, which are bound by reading B.
#include "device/thread_pool.h"
#include "ops/gemm_run.h"
#include "ops/scratch.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kColumns = 256;                      // of one step, whose sums lie on the stack
constexpr int64_t kRowThreadBytes = int64_t{1} << 18;  // of B, below which a thread does not pay

}  // namespace

template <typename Acc>
void gemm_row(const GemmProblem& p, const OpContext& context, const GemmKernel<Acc>& kernel) {
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  const int64_t out_size = p.dtype == Dtype::kInt8 ? int64_t{sizeof(Acc)} : size;
  const bool as_it_lies = size == sizeof(Acc) && p.a.col_stride == 1;
  Scratch wide(as_it_lies ? 0 : static_cast<size_t>(p.batch * p.k) * sizeof(Acc), context);
  for (int64_t item = 0; !as_it_lies && item < p.batch; ++item) {
    kernel.widen(reinterpret_cast<Acc*>(wide.data()) + item * p.k,
                 static_cast<const char*>(p.a.data) + gemm_offset(p.a, item, 0, 0, size), p.k,
                 p.a.col_stride);
  }
  const int64_t steps = divide_up(p.n, kColumns);
  const auto run = [&](int64_t begin, int64_t end) {
    alignas(64) Acc sums[kColumns];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t item = i / steps, col = i % steps * kColumns;
      const int64_t cols = std::min(kColumns, p.n - col);
      const auto* a = as_it_lies
                          ? static_cast<const Acc*>(p.a.data) + gemm_offset(p.a, item, 0, 0, 1)
                          : reinterpret_cast<const Acc*>(wide.data()) + item * p.k;
      const char* b = static_cast<const char*>(p.b.data) + gemm_offset(p.b, item, 0, col, size);
      if (p.b.row_stride == 1) {
        kernel.dot(sums, a, b, p.k, cols, p.b.col_stride);
      } else {
        kernel.axpy(sums, a, b, p.k, cols, p.b.row_stride);
      }
      const char* add = static_cast<const char*>(p.add.data);
      if (add != nullptr) add += gemm_offset(p.add, item, 0, col, out_size);
      kernel.finish({sums, 0, 1, cols,
                     static_cast<char*>(p.out.data) + gemm_offset(p.out, item, 0, col, out_size), 0,
                     p.out.col_stride, add, 0, p.add.col_stride, static_cast<Acc>(p.alpha),
                     static_cast<Acc>(p.beta)});
    }
  };
  const int64_t step_bytes = std::max<int64_t>(1, p.k * std::min(kColumns, p.n) * size);
  const int64_t grain = divide_up(kRowThreadBytes, step_bytes);
  if (steps * p.batch <= grain) {
    run(0, steps * p.batch);
  } else {
    parallel_for(steps * p.batch, grain, run);
  }
}

template void gemm_row(const GemmProblem&, const OpContext&, const GemmKernel<float>&);
template void gemm_row(const GemmProblem&, const OpContext&, const GemmKernel<double>&);
template void gemm_row(const GemmProblem&, const OpContext&, const GemmKernel<int32_t>&);

}  // namespace cudaexec::ops
