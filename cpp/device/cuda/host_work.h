// Host memory that work on a stream reads or writes must not go away before that work is done, also
// where an exception ends the scope.
#pragma once

#include "base/cleanup_report.h"
#include "base/error.h"
#include "device/cuda/cuda_device.h"

namespace cudaexec {

/// Declare it after the host memory. Until wait() has succeeded, the destructor waits.
class HostWork {
 public:
  HostWork(CudaDevice& device, StreamRef stream) noexcept : device_(device), stream_(stream) {}
  ~HostWork() {
    if (!pending_) return;
    try {
      device_.synchronize(stream_);
    } catch (const Error& error) {
      report_cleanup_failure("waiting for copies", error.what());
    }
  }
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

  /// From now on work on the stream touches the memory.
  void begin() noexcept { pending_ = true; }
  [[nodiscard]] bool pending() const noexcept { return pending_; }
  /// Waits for the stream if begin() was called. @throws as CudaDevice::synchronize.
  void wait() {
    if (!pending_) return;
    device_.synchronize(stream_);
    pending_ = false;
  }

 private:
  CudaDevice& device_;
  StreamRef stream_;
  bool pending_ = false;
};

}  // namespace cudaexec
