// The devices of this process, made when they are first asked for.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"

namespace cudaexec {

using namespace cuda;

namespace {

constexpr int kMaxDevices = 64;

struct Registry {
  ForkMutex mutex;
  std::array<std::unique_ptr<CudaDevice>, kMaxDevices> owned;
  std::array<std::atomic<CudaDevice*>, kMaxDevices> devices{};
};

Registry& registry() noexcept {
  static Registry& instance = *new Registry;  // never destroyed: the driver ends before statics do
  return instance;
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  CUDAEXEC_CU(cuDeviceGetCount, &count);
  return std::min(count, kMaxDevices);
}

CudaDevice* cuda_device_if_used(int index) noexcept {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  return registry().devices[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

CudaDevice& cuda_device(int index) {
  if (CudaDevice* device = cuda_device_if_used(index); device != nullptr) return *device;
  Registry& all = registry();
  const int count = cuda_device_count();
  if (index < 0 || index >= count) {
    throw DeviceError(str("cuda:", index, " does not exist: this process sees ", count,
                          count == 1 ? " GPU (cuda:0)" : " GPUs, numbered from cuda:0",
                          "; choose another device, or check CUDA_VISIBLE_DEVICES"));
  }
  const auto slot = static_cast<size_t>(index);
  const std::lock_guard lock(all.mutex);
  if (!all.owned[slot]) {
    all.owned[slot] = std::make_unique<CudaDevice>(index);
    all.devices[slot].store(all.owned[slot].get(), std::memory_order_release);
  }
  return *all.owned[slot];
}

CudaDevice* cuda_device_of(CUcontext context) noexcept {
  if (context == nullptr) return nullptr;
  for (std::atomic<CudaDevice*>& slot : registry().devices) {
    CudaDevice* device = slot.load(std::memory_order_acquire);
    if (device != nullptr && device->context_if_retained() == context) return device;
  }
  return nullptr;
}

CudaDevice* cuda_device_of_stream(StreamRef stream) {
  const CUstream handle = cu_stream(stream);
  if (handle == nullptr || handle == legacy_stream() || handle == per_thread_stream()) {
    return nullptr;
  }
  CUcontext context = nullptr;
  CUDAEXEC_CU(cuStreamGetCtx, handle, &context);
  if (CudaDevice* device = cuda_device_of(context); device != nullptr) return device;
  // A device that nobody asked for yet: the stream's context tells which, if it is a primary one.
  CUdevice ordinal = 0;
  {
    const ContextGuard guard(context);
    CUDAEXEC_CU(cuCtxGetDevice, &ordinal);
  }
  CudaDevice& device = cuda_device(ordinal);
  if (device.context() != context) {
    throw DeviceError(str("the stream belongs to a CUDA context of its own on cuda:", ordinal,
                          "; only streams of the primary context (the one of torch, cupy and the "
                          "CUDA runtime) can be used"));
  }
  return &device;
}

void reset_cuda_devices() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (std::atomic<CudaDevice*>& slot : all.devices) slot.store(nullptr);
  for (std::unique_ptr<CudaDevice>& device : all.owned) device.reset();
}

}  // namespace cudaexec
