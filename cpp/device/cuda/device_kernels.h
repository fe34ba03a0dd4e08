// Our own GPU code: compiled from cuda/ into images that are part of this library, loaded per
// device when a kernel is first needed.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/driver.h"
#include "device/cuda/handles.h"

namespace cudaexec {

class CudaDevice;

/// One compiled file of cuda/: cubins for several GPUs and PTX for newer ones.
struct DeviceImage {
  const char* name;  // the file's stem
  const void* data;
};

/// Empty where nvcc was missing when this library was built.
CUDAEXEC_API std::span<const DeviceImage> device_images() noexcept;

/// The loaded kernels of one device. Thread-safe.
class CUDAEXEC_API DeviceKernels {
 public:
  /// @throws NotSupported if this build has no such image, TargetError if it does not run on the
  /// device, InternalError if it lacks the kernel.
  [[nodiscard]] cuda::CUfunction get(CudaDevice& device, const char* image, const char* kernel);
  void unload() noexcept;

 private:
  cuda::CUmodule module_of(CudaDevice& device, const char* image);

  ForkMutex mutex_;
  std::map<std::string, cuda::ModuleHandle, std::less<>> modules_;
  std::map<std::string, cuda::CUfunction, std::less<>> functions_;
};

}  // namespace cudaexec
