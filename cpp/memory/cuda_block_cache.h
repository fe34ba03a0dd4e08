// Keeps small freed blocks of device memory for the next request on the same stream, without a
// driver call.
#pragma once

#include <cstddef>
#include <vector>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/cuda_device.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Wraps an allocator of a device's memory. Only blocks of streams that live as long as the device
/// are kept (the legacy default stream and the calling thread's own): another stream of the same
/// handle would not follow their work. When `upstream` is out of memory, everything kept is
/// returned and the request is tried once more. Thread-safe.
class CUDAEXEC_API CudaBlockCache final : public Allocator {
 public:
  static constexpr size_t kMostOfBlock = size_t{128} << 10;  // bytes; graphs' memory is larger
  static constexpr size_t kMostBlocks = 64;

  /// Both outlive it.
  CudaBlockCache(CudaDevice& device, Allocator& upstream);
  ~CudaBlockCache() override;
  CudaBlockCache(const CudaBlockCache&) = delete;
  CudaBlockCache& operator=(const CudaBlockCache&) = delete;

  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  /// Gives back what is kept, and what `upstream` keeps.
  size_t trim() noexcept override;
  [[nodiscard]] size_t cached() const noexcept;

 private:
  struct Block {
    void* data;
    size_t nbytes;
    StreamRef stream;
  };
  [[nodiscard]] static size_t rounded(size_t nbytes) noexcept;
  size_t empty() noexcept;

  CudaDevice& device_;
  Allocator& upstream_;
  mutable ForkMutex mutex_;
  std::vector<Block> blocks_;  // room for kMostBlocks; the newest last
};

}  // namespace cudaexec
