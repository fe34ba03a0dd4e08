# Sources of cpp/device/cuda, relative to cpp/.
list(APPEND CUDAEXEC_DEVICE_SOURCES
    device/cuda/batch_copy.cpp
    device/cuda/check.cpp
    device/cuda/cuda_device.cpp
    device/cuda/device_kernels.cpp
    device/cuda/device_registry.cpp
    device/cuda/driver.cpp
    device/cuda/generated_call.cpp
    device/cuda/generated_entries.cpp
    device/cuda/graph_capture.cpp
    device/cuda/handles.cpp
    device/cuda/module_tracker.cpp
    device/cuda/pointer_info.cpp
    device/cuda/stream.cpp
    device/cuda/strided_copy.cpp
    device/cuda/strided_copy_plan.cpp
)
