# Sources of cpp/runtime, relative to cpp/.
set(CUDAEXEC_RUNTIME_SOURCES
)
