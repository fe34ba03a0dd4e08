// Matrix product kernels for x86-64-v4 (AVX-512 F, BW, DQ, VL).
#define CUDAEXEC_VECTOR_BYTES 64
#define CUDAEXEC_TILE_ROWS 14
#include "ops/gemm_kernel_table.inl"

namespace cudaexec::ops {

const GemmKernelSet kGemmAvx512 = {
    "avx512",
    make_kernel<WideStep<Plain<float>, Plain<float>>>(),
    make_kernel<Bf16WideStep>(),
    make_kernel<WideStep<F16, F16>>(),
    make_kernel<WideStep<Plain<double>, Plain<double>>>(),
    make_kernel<Int8PairStep>(),
};

}  // namespace cudaexec::ops
