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
  /// float8 (e4m3, no infinities) to float32.
  void (*widen_f8)(float* dst, const uint8_t* src, int64_t count);
  /// The other way: to nearest even, beyond 448 to 448; NaN stays NaN.
  void (*narrow_f8)(uint8_t* dst, const float* src, int64_t count);
};

extern const AttentionKernelSet kAttentionPortable;
extern const AttentionKernelSet kAttentionAvx2;
extern const AttentionKernelSet kAttentionAvx512;

/// Those of the instruction set that gemm_kernels() are of.
const AttentionKernelSet& attention_kernels() noexcept;

}  // namespace cudaexec::ops
