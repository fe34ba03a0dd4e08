# libcudaexec_onednn.so, relative to cpp/.
set(CUDAEXEC_ONEDNN_SOURCES
    ops/onednn/convolve.cpp
    ops/onednn/entry.cpp
    ops/onednn/prepared.cpp
    ops/onednn/weights.cpp
)
