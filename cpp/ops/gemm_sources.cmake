# Matrix products and what is built on them, relative to cpp/. A file of an instruction set is compiled for it and called only
# where gemm_dispatch.cpp finds it; it includes no C++ header whose inline functions could leak out.
set(_gemm_flags -O3 -ffp-contract=fast -Wno-uninitialized -Wno-maybe-uninitialized)
set(_avx2_flags ${_gemm_flags} -mavx2 -mfma -mf16c)
set(_avx512_flags ${_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl
                  -mprefer-vector-width=512)
set_source_files_properties(ops/gemm_portable.cpp ops/attention_portable.cpp
                            PROPERTIES COMPILE_OPTIONS "${_gemm_flags}")
set_source_files_properties(ops/gemm_avx2.cpp ops/attention_avx2.cpp
                            PROPERTIES COMPILE_OPTIONS "${_avx2_flags}")
set_source_files_properties(ops/gemm_avx512.cpp ops/attention_avx512.cpp
                            PROPERTIES COMPILE_OPTIONS "${_avx512_flags}")
set_source_files_properties(ops/gemm_avx512bf16.cpp
                            PROPERTIES COMPILE_OPTIONS "${_avx512_flags};-mavx512bf16")
set(CUDAEXEC_GEMM_SOURCES
    ops/attention.cpp
    ops/attention_avx2.cpp
    ops/attention_avx512.cpp
    ops/attention_portable.cpp
    ops/attention_run.cpp
    ops/convolution.cpp
    ops/convolution_engine.cpp
    ops/convolution_gather.cpp
    ops/gemm.cpp
    ops/gemm_avx2.cpp
    ops/gemm_avx512.cpp
    ops/gemm_avx512bf16.cpp
    ops/gemm_dispatch.cpp
    ops/gemm_integer.cpp
    ops/gemm_portable.cpp
    ops/gemm_row.cpp
    ops/gemm_run.cpp
    ops/kv_attention.cpp
    ops/kv_attention_run.cpp
    ops/matmul.cpp
    ops/onednn_loader.cpp
    ops/pack_cache.cpp
)
