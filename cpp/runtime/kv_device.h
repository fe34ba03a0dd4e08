// What a KV cache on a GPU has besides its pages: the word that its kernels go by, and the place
// where they report steps that came with other positions.
#pragma once

#include <cstdint>
#include <optional>

#include "device/cuda/cuda_device.h"
#include "memory/allocator.h"
#include "ops/kv_step.h"

namespace cudaexec {

class KvDevice {
 public:
  /// @throws OutOfMemory, DeviceError.
  explicit KvDevice(CudaDevice& device);
  ~KvDevice();
  KvDevice(const KvDevice&) = delete;
  KvDevice& operator=(const KvDevice&) = delete;

  [[nodiscard]] KvDeviceWord* word() const noexcept { return word_; }
  [[nodiscard]] KvFault* fault() const noexcept { return fault_; }
  /// Tells the kernels of a step on `stream` where it starts.
  void set_position(int64_t position, StreamRef stream);
  /// Copies on `stream` and waits for it; with a null `dst` it only waits.
  void copy(std::byte* dst, const std::byte* src, size_t nbytes, StreamRef stream);
  /// What the GPU has reported so far, once; after it has finished what it reports on, so that the
  /// next set_position() makes it write again.
  [[nodiscard]] std::optional<KvFault> take_fault() noexcept;

 private:
  CudaDevice& device_;
  StreamRef stream_;  // that the word's memory is ordered on
  KvDeviceWord* word_ = nullptr;
  KvFault* fault_ = nullptr;
  bool poisoned_ = true;  // the word is to be cleared: it is uninitialised at first
};

}  // namespace cudaexec
