// Matrix product kernels for the x86-64 baseline.
#define CUDAEXEC_VECTOR_BYTES 16
#define CUDAEXEC_TILE_ROWS 4
#include "ops/gemm_kernel_table.inl"

namespace cudaexec::ops {

const GemmKernelSet kGemmPortable = {
    "portable",
    make_kernel<WideStep<Plain<float>, Plain<float>>>(),
    make_kernel<Bf16WideStep>(),
    make_kernel<WideStep<F16, Plain<float>>>(),
    make_kernel<WideStep<Plain<double>, Plain<double>>>(),
    make_kernel<WideStep<Int8, Plain<int32_t>>>(),
};

}  // namespace cudaexec::ops
