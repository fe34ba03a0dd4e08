# Sources of cpp/ops/cuda, relative to cpp/.
set(CUDAEXEC_OPS_CUDA_SOURCES
    ops/cuda/cublas.cpp
    ops/cuda/cublas_library.cpp
    ops/cuda/device_tensor.cpp
    ops/cuda/library_search.cpp
    ops/cuda/matmul.cpp
    ops/cuda/matmul_layout.cpp
)
