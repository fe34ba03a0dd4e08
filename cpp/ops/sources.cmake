# Sources of cpp/ops, relative to cpp/.
set(CUDAEXEC_OPS_SOURCES
)
