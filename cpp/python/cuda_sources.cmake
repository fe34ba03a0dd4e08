# Sources of cpp/python for GPUs, relative to cpp/.
list(APPEND CUDAEXEC_PYTHON_SOURCES
    python/bind_cuda_testing.cpp
    python/bind_cuda_testing_echo.cpp
    python/bind_cuda_testing_code.cpp
    python/bind_cuda_testing_memory.cpp
    python/bind_cuda_testing_ops.cpp
    python/bind_cuda_testing_program.cpp
)
