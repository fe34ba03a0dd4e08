// Matrix products of integers, which no model spends its time in: plain loops.
#pragma once

#include "ops/gemm.h"

namespace cudaexec::ops {

/// As gemm() for uint8, int8, int16, int32 and int64 with `out` and `add` of the same dtype; sums
/// wrap around; alpha and beta are truncated to integers. @throws NotSupported for other dtypes.
void gemm_integer(const GemmProblem& problem);

/// gemm() or gemm_integer(), by dtype.
void multiply_matrices(const GemmProblem& problem, const OpContext& context);

}  // namespace cudaexec::ops
