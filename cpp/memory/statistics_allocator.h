// Counts what goes through another allocator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/export.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Thread-safe. `upstream` must outlive it.
class CUDAEXEC_API StatisticsAllocator final : public Allocator {
 public:
  explicit StatisticsAllocator(Allocator& upstream) noexcept : upstream_(upstream) {}

  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  size_t trim() noexcept override { return upstream_.trim(); }

  /// Bytes asked for and not given back yet.
  [[nodiscard]] size_t current() const noexcept { return current_.load(); }
  /// The largest current() so far.
  [[nodiscard]] size_t peak() const noexcept { return peak_.load(); }
  /// Blocks not given back yet.
  [[nodiscard]] int64_t live_blocks() const noexcept { return live_blocks_.load(); }
  /// Successful calls of allocate() so far.
  [[nodiscard]] int64_t allocations() const noexcept { return allocations_.load(); }

 private:
  Allocator& upstream_;
  std::atomic<size_t> current_{0};
  std::atomic<size_t> peak_{0};
  std::atomic<int64_t> live_blocks_{0};
  std::atomic<int64_t> allocations_{0};
};

}  // namespace cudaexec
