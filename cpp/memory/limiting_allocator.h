// Refuses to hand out more than a limit.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/export.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Thread-safe. `upstream` must outlive it.
class CUDAEXEC_API LimitingAllocator final : public Allocator {
 public:
  /// `limit`: most bytes out at any time.
  LimitingAllocator(Allocator& upstream, size_t limit) noexcept
      : upstream_(upstream), limit_(limit) {}

  /// @throws OutOfMemory naming the request, the bytes in use and the limit; then nothing changed.
  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  size_t trim() noexcept override { return upstream_.trim(); }

  [[nodiscard]] size_t used() const noexcept { return used_.load(); }
  [[nodiscard]] size_t limit() const noexcept { return limit_; }

 private:
  Allocator& upstream_;
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

}  // namespace cudaexec
