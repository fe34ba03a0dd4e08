# Sources of cpp/tensor, relative to cpp/.
set(CUDAEXEC_TENSOR_SOURCES
    tensor/dtype.cpp
    tensor/storage.cpp
    tensor/tensor.cpp
)
