// Keeps freed host blocks for reuse, by size class.
#pragma once

#include <array>
#include <cstddef>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Wraps an allocator of host memory (free blocks hold the links of their list, so the CPU must be
/// able to write them). Sizes are rounded up to one of four classes per power of two: at most a
/// quarter more. When `upstream` is out of memory, everything cached is returned and the request is
/// tried once more. Thread-safe; streams are passed on and otherwise ignored, since host work is
/// done when its call returns.
class CUDAEXEC_API CachingAllocator final : public Allocator {
 public:
  static constexpr size_t kDefaultMaxCached = size_t{256} << 20;

  /// `upstream` must outlive this. At most `max_cached` bytes wait for reuse.
  explicit CachingAllocator(Allocator& upstream, size_t max_cached = kDefaultMaxCached) noexcept;
  ~CachingAllocator() override;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  size_t trim() noexcept override;

  /// Bytes waiting for reuse.
  [[nodiscard]] size_t cached() const noexcept;
  /// What `nbytes` is rounded up to.
  [[nodiscard]] static size_t rounded(size_t nbytes) noexcept;

 private:
  struct FreeBlock {
    FreeBlock* next;
    size_t nbytes;
  };
  static constexpr size_t kClasses = 4 * 42;  // 64 bytes to 2^48

  /// Unlinks free blocks, largest first, until at most `keep` bytes are cached; returns them.
  FreeBlock* unlink_above(size_t keep, size_t& nbytes) noexcept;
  void free_list(FreeBlock* list) noexcept;

  Allocator& upstream_;
  const size_t max_cached_;
  mutable ForkMutex mutex_;
  size_t cached_ = 0;
  std::array<FreeBlock*, kClasses> free_{};
};

}  // namespace cudaexec
