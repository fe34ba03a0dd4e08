#include "device/cuda/device_kernels.h"

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/graph_capture.h"

namespace cudaexec {

using namespace cuda;

CUfunction DeviceKernels::get(CudaDevice& device, const char* image, const char* kernel) {
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(std::string_view(kernel)); found != functions_.end()) {
    return found->second;
  }
  const CudaGuard guard(device);
  CUfunction function = nullptr;
  CUDAEXEC_CU(cuModuleGetFunction, &function, module_of(device, image), kernel);
  functions_.emplace(kernel, function);
  return function;
}

void DeviceKernels::unload() noexcept {
  const std::lock_guard lock(mutex_);
  functions_.clear();
  modules_.clear();
}

CUmodule DeviceKernels::module_of(CudaDevice& device, const char* image) {
  if (const auto found = modules_.find(std::string_view(image)); found != modules_.end()) {
    return found->second.get();
  }
  for (const DeviceImage& candidate : device_images()) {
    if (std::string_view(candidate.name) != image) continue;
    const RelaxedCaptureMode relaxed;  // a capture of this thread may be what asks first
    CUmodule module = nullptr;
    CUDAEXEC_CU(cuModuleLoadData, &module, candidate.data);
    ModuleHandle owner(module, device.context());
    return modules_.emplace(image, std::move(owner)).first->second.get();
  }
  throw NotSupported(
      str("this build of cudaexec has no GPU code for ", image,
          ": nvcc was missing when it was built; install nvcc (CUDA 12 or newer) and "
          "rebuild, or pass contiguous, aligned inputs of the compiled layout"));
}

}  // namespace cudaexec
