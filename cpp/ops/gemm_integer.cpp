#include "ops/gemm_integer.h"

#include "base/error.h"
#include "base/str.h"
#include "device/thread_pool.h"
#include "ops/gemm_run.h"

namespace cudaexec::ops {
namespace {

/// Unsigned arithmetic wraps around without undefined behaviour.
template <typename T>
void multiply_row(const GemmProblem& p, int64_t item, int64_t row) {
  const auto at = [&](const GemmOperand& operand, int64_t r, int64_t c) {
    return static_cast<T*>(operand.data) + gemm_offset(operand, item, r, c, 1);
  };
  const auto alpha = static_cast<uint64_t>(static_cast<int64_t>(p.alpha));
  const auto beta = static_cast<uint64_t>(static_cast<int64_t>(p.beta));
  for (int64_t col = 0; col < p.n; ++col) {
    const T* a = at(p.a, row, 0);
    const T* b = at(p.b, 0, col);
    uint64_t sum = 0;
    for (int64_t i = 0; i < p.k; ++i) {
      sum += static_cast<uint64_t>(*a) * static_cast<uint64_t>(*b);
      a += p.a.col_stride;
      b += p.b.row_stride;
    }
    sum *= alpha;
    if (p.add.data != nullptr) sum += beta * static_cast<uint64_t>(*at(p.add, row, col));
    *at(p.out, row, col) = static_cast<T>(sum);
  }
}

template <typename T>
void multiply(const GemmProblem& p) {
  const int64_t row_work = std::max<int64_t>(1, p.n * p.k);
  parallel_for(p.batch * p.m, divide_up(kThreadWork / 16, row_work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) multiply_row<T>(p, i / p.m, i % p.m);
               });
}

}  // namespace

void gemm_integer(const GemmProblem& problem) {
  GemmProblem p = problem;
  if (p.beta == 0.0) p.add.data = nullptr;
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  switch (p.dtype) {
    case Dtype::kUint8:
      return multiply<uint8_t>(p);
    case Dtype::kInt8:
      return multiply<int8_t>(p);
    case Dtype::kInt16:
      return multiply<int16_t>(p);
    case Dtype::kInt32:
      return multiply<int32_t>(p);
    case Dtype::kInt64:
      return multiply<int64_t>(p);
    default:
      throw NotSupported(str("matrix product: no kernel for ", dtype_name(p.dtype)));
  }
}

void multiply_matrices(const GemmProblem& problem, const OpContext& context) {
  if (is_floating_point(problem.dtype)) {
    gemm(problem, context);
  } else {
    gemm_integer(problem);
  }
}

}  // namespace cudaexec::ops
