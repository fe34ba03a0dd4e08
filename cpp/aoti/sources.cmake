# Sources of cpp/aoti, relative to cpp/.
set(CUDAEXEC_AOTI_SOURCES
)
