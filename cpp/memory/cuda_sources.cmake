# Sources of cpp/memory for GPUs, relative to cpp/.
list(APPEND CUDAEXEC_MEMORY_SOURCES
    memory/cuda_block_cache.cpp
    memory/cuda_graph_memory.cpp
    memory/cuda_pages.cpp
    memory/cuda_pinned_allocator.cpp
    memory/cuda_pool_allocator.cpp
)
