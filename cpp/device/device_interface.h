// What the runtime asks of a device besides memory: moving bytes and waiting.
#pragma once

#include <cstddef>

#include "base/export.h"
#include "device/device.h"

namespace cudaexec {

class CUDAEXEC_API DeviceInterface {
 public:
  virtual ~DeviceInterface() = default;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// Copies `nbytes` bytes; ordered on `stream`. On the CPU it is done on return. No overlap.
  virtual void copy(void* dst, Device dst_device, const void* src, Device src_device, size_t nbytes,
                    StreamRef stream) = 0;
  virtual void zero(void* dst, size_t nbytes, StreamRef stream) = 0;
  /// Waits until all work ordered on `stream` so far is done.
  virtual void synchronize(StreamRef stream) = 0;
};

/// The CPU as a device; lives as long as the process.
CUDAEXEC_API DeviceInterface& cpu_device() noexcept;

}  // namespace cudaexec
