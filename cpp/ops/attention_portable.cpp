// Attention's score rows, compiled as gemm_portable.cpp is.
#define CUDAEXEC_VECTOR_BYTES 16
#include "ops/attention_kernels.inl"

namespace cudaexec::ops {

const AttentionKernelSet kAttentionPortable = {"portable", kFloats, kDoubles, widen_f8, narrow_f8};

}  // namespace cudaexec::ops
