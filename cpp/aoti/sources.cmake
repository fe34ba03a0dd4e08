# Sources of cpp/aoti, relative to cpp/.
set(CUDAEXEC_AOTI_SOURCES
    aoti/shims/sleef_avx2.cpp
    aoti/shims/sleef_avx512.cpp
)
