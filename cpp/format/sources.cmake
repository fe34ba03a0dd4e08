# Sources of cpp/format, relative to cpp/.
set(CUDAEXEC_FORMAT_SOURCES
)
