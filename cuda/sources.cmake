# Device code, relative to cuda/. Each file becomes one image of the library, named after its stem.
set(CUDAEXEC_DEVICE_CODE
    batch_copy.cu
    cast.cu
    convolution.cu
    embedding.cu
    index.cu
    kv_attention.cu
    kv_matrix.cu
    nonzero.cu
    pool.cu
    random.cu
    scan.cu
    sort.cu
    strided_copy.cu
)
