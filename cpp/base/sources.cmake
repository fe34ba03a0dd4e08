# Sources of cpp/base, relative to cpp/.
set(CUDAEXEC_BASE_SOURCES
    base/cleanup_report.cpp
    base/error.cpp
    base/log.cpp
    base/fault.cpp
    base/fork_mutex.cpp
    base/sha256.cpp
    base/tree_hash.cpp
    base/words.cpp
)
# At -O3 GCC 12 warns about the deliberately undefined values in its own AVX-512 header.
set_source_files_properties(base/tree_hash.cpp PROPERTIES COMPILE_OPTIONS
                            "-Wno-uninitialized;-Wno-maybe-uninitialized")
