// Temporary GPU memory of one operator call, from the call's allocator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/allocator.h"
#include "ops/op_context.h"

namespace cudaexec::gpu {

/// Uninitialised, aligned to 256 bytes; freed with the object, for the stream's later work.
class DeviceScratch {
 public:
  DeviceScratch(size_t nbytes, const OpContext& context)
      : allocator_(context.allocator), stream_(context.stream), nbytes_(nbytes) {
    if (nbytes_ == 0) return;
    nbytes_ += kAlignment - kDefaultAlignment;
    block_ = allocator_.allocate(nbytes_, stream_);
  }
  ~DeviceScratch() {
    if (block_ != nullptr) allocator_.deallocate(block_, nbytes_, stream_);
  }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  /// Null for 0 bytes.
  [[nodiscard]] void* data() const noexcept {
    const uintptr_t mask = kAlignment - 1;
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block_) + mask) & ~mask);
  }

 private:
  static constexpr size_t kAlignment = 256;
  Allocator& allocator_;
  StreamRef stream_;
  size_t nbytes_;
  void* block_ = nullptr;
};

}  // namespace cudaexec::gpu
