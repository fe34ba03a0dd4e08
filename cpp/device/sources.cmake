# Sources of cpp/device, relative to cpp/.
set(CUDAEXEC_DEVICE_SOURCES
    device/cpu_device.cpp
    device/cpu_features.cpp
    device/cpu_limits.cpp
    device/gomp.cpp
    device/gomp_loops.cpp
    device/team.cpp
    device/thread_pool.cpp
)
include("${CMAKE_CURRENT_LIST_DIR}/cuda/sources.cmake")
