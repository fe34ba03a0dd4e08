// Attention's score rows, compiled as gemm_avx2.cpp is.
#define CUDAEXEC_VECTOR_BYTES 32
#include "ops/attention_kernels.inl"

namespace cudaexec::ops {

const AttentionKernelSet kAttentionAvx2 = {"avx2", kFloats, kDoubles, widen_f8, narrow_f8};

}  // namespace cudaexec::ops
