# Sources of cpp/memory, relative to cpp/.
set(CUDAEXEC_MEMORY_SOURCES
    memory/caching_allocator.cpp
    memory/cpu_allocator.cpp
    memory/cpu_pages.cpp
    memory/limiting_allocator.cpp
    memory/statistics_allocator.cpp
)
include("${CMAKE_CURRENT_LIST_DIR}/cuda_sources.cmake")
