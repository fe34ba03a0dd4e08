#include "memory/statistics_allocator.h"

namespace cudaexec {

void* StatisticsAllocator::allocate(size_t nbytes, StreamRef stream) {
  void* data = upstream_.allocate(nbytes, stream);
  const size_t now = current_.fetch_add(nbytes, std::memory_order_relaxed) + nbytes;
  size_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void StatisticsAllocator::deallocate(void* data, size_t nbytes, StreamRef stream) noexcept {
  upstream_.deallocate(data, nbytes, stream);
  current_.fetch_sub(nbytes, std::memory_order_relaxed);
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cudaexec
