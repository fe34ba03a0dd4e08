// One piece of page-locked host memory.
#pragma once

#include <cstddef>
#include <utility>

#include "memory/cuda_pinned_allocator.h"

namespace cudaexec {

class PinnedBlock {
 public:
  PinnedBlock() noexcept = default;
  /// Nothing for 0 bytes. @throws OutOfMemory, DeviceError.
  explicit PinnedBlock(size_t nbytes)
      : data_(nbytes != 0 ? cuda_pinned_allocator().allocate(nbytes, {}) : nullptr),
        nbytes_(nbytes) {}
  PinnedBlock(PinnedBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)) {}
  PinnedBlock& operator=(PinnedBlock other) noexcept {
    std::swap(data_, other.data_);
    std::swap(nbytes_, other.nbytes_);
    return *this;
  }
  /// No copy uses it any more.
  ~PinnedBlock() {
    if (data_ != nullptr) cuda_pinned_allocator().deallocate(data_, nbytes_, {});
  }

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] size_t nbytes() const noexcept { return nbytes_; }

 private:
  void* data_ = nullptr;
  size_t nbytes_ = 0;
};

}  // namespace cudaexec
