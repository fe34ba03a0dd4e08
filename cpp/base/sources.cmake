# Sources of cpp/base, relative to cpp/.
set(CUDAEXEC_BASE_SOURCES
    base/cleanup_report.cpp
    base/error.cpp
    base/log.cpp
    base/fault.cpp
    base/sha256.cpp
    base/tree_hash.cpp
)
