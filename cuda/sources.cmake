# Device code, relative to cuda/. Each file becomes one image of the library, named after its stem.
set(CUDAEXEC_DEVICE_CODE
    strided_copy.cu
)
