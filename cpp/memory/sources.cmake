# Sources of cpp/memory, relative to cpp/.
set(CUDAEXEC_MEMORY_SOURCES
    memory/cpu_allocator.cpp
)
