// What memory an address is, as the driver knows it.
#pragma once

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"

namespace cudaexec {

enum class MemoryKind {
  kPageable,  // ordinary host memory, or nothing that CUDA knows
  kPinned,    // page-locked host memory: copies really are asynchronous
  kDevice,
  kManaged,  // migrates; both sides may use it
};

struct PointerInfo {
  MemoryKind kind = MemoryKind::kPageable;
  int device_index = -1;  // of the device it was allocated on; -1 for pageable memory
};

/// One driver call; not for the hot path. Null is pageable. @throws DeviceError if there is no
/// driver.
CUDAEXEC_API PointerInfo pointer_info(const void* data);

}  // namespace cudaexec
