# Sources of cpp/ops/cuda, relative to cpp/.
set(CUDAEXEC_OPS_CUDA_SOURCES
    ops/cuda/cast.cpp
    ops/cuda/convolution.cpp
    ops/cuda/cublas.cpp
    ops/cuda/cublas_library.cpp
    ops/cuda/device_tensor.cpp
    ops/cuda/embedding.cpp
    ops/cuda/index.cpp
    ops/cuda/library_search.cpp
    ops/cuda/matmul.cpp
    ops/cuda/matmul_layout.cpp
    ops/cuda/nonzero.cpp
    ops/cuda/random.cpp
    ops/cuda/scan.cpp
    ops/cuda/scatter.cpp
    ops/cuda/sort.cpp
)
