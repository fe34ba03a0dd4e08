# Sources of cpp/tensor, relative to cpp/.
set(CUDAEXEC_TENSOR_SOURCES
    tensor/convert.cpp
    tensor/dlpack.cpp
    tensor/dtype.cpp
    tensor/storage.cpp
    tensor/strided_copy.cpp
    tensor/tensor.cpp
)
