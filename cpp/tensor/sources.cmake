# Sources of cpp/tensor, relative to cpp/. rows_avx2.cpp is compiled for its instruction set and used
# only where rows_portable.cpp finds it.
set_source_files_properties(tensor/rows_portable.cpp PROPERTIES COMPILE_OPTIONS "-O3")
set_source_files_properties(tensor/rows_avx2.cpp
                            PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c")
set(CUDAEXEC_TENSOR_SOURCES
    tensor/convert.cpp
    tensor/device_copy.cpp
    tensor/dlpack.cpp
    tensor/dtype.cpp
    tensor/rows_avx2.cpp
    tensor/rows_portable.cpp
    tensor/storage.cpp
    tensor/strided_copy.cpp
    tensor/tensor.cpp
)
