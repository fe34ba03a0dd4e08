// Attention's score rows, compiled as gemm_avx512.cpp is.
#define CUDAEXEC_VECTOR_BYTES 64
#include "ops/attention_kernels.inl"

namespace cudaexec::ops {

const AttentionKernelSet kAttentionAvx512 = {"avx512", kFloats, kDoubles, widen_f8, narrow_f8};

}  // namespace cudaexec::ops
