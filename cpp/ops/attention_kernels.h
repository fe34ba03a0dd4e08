// Rows of attention scores, per instruction set. Plain data only, as gemm_kernels.h.
#pragma once

#include <cstdint>

namespace cudaexec::ops {

template <typename Acc>
struct AttentionKernel {
  /// Largest of `count` > 0 values; NaN wins.
  Acc (*largest)(const Acc* row, int64_t count);
  /// row[i] = exp(row[i] - shift); returns the sum.
  Acc (*exponentiate)(Acc* row, int64_t count, Acc shift);
  void (*scale)(Acc* row, int64_t count, Acc factor);
  void (*add)(Acc* row, const Acc* other, int64_t count);
};

struct AttentionKernelSet {
  const char* name;
  AttentionKernel<float> f32;
  AttentionKernel<double> f64;
};

extern const AttentionKernelSet kAttentionPortable;
extern const AttentionKernelSet kAttentionAvx2;
extern const AttentionKernelSet kAttentionAvx512;

}  // namespace cudaexec::ops
