# Sources of cpp/device, relative to cpp/.
set(CUDAEXEC_DEVICE_SOURCES
    device/cpu_device.cpp
)
