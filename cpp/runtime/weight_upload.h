// Host bytes to a GPU: large amounts through page-locked buffers, by several threads.
#pragma once

#include <cstddef>
#include <span>

#include "base/export.h"
#include "device/cuda/cuda_device.h"

namespace cudaexec {

struct Upload {
  void* dst = nullptr;  // on the GPU
  std::span<const std::byte> src;
};

/// Copies all, in their order as far as threads keep it (a mapped file is read from front to back).
/// Done on return. Takes at most 64 MiB of host memory. `stream` belongs to `device`.
/// @throws OutOfMemory, DeviceError; then nothing reads `src` or writes `dst` any more.
CUDAEXEC_API void upload(CudaDevice& device, std::span<const Upload> uploads, StreamRef stream);

}  // namespace cudaexec
