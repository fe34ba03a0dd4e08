// Matrix product kernels for x86-64-v3 (AVX2, FMA, F16C).
#define CUDAEXEC_VECTOR_BYTES 32
#define CUDAEXEC_TILE_ROWS 6
#include "ops/gemm_kernel_table.inl"

namespace cudaexec::ops {

const GemmKernelSet kGemmAvx2 = {
    "avx2",
    make_kernel<WideStep<Plain<float>, Plain<float>>>(),
    make_kernel<Bf16WideStep>(),
    make_kernel<WideStep<F16, F16>>(),
    make_kernel<WideStep<Plain<double>, Plain<double>>>(),
    make_kernel<Int8PairStep>(),
};

}  // namespace cudaexec::ops
