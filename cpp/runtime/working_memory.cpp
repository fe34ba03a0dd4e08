#include "runtime/working_memory.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace cudaexec {
namespace {

std::atomic<int64_t> live_memories{0};

}  // namespace

WorkingMemory::WorkingMemory(size_t limit, Allocator& upstream, bool caches,
                             std::unique_ptr<Allocator> cache) noexcept
    : caches_(caches),
      cache_(std::move(cache)),
      limiting_(upstream, limit == 0 ? std::numeric_limits<size_t>::max() : limit),
      caching_(limiting_),
      statistics_(caches ? static_cast<Allocator&>(caching_) : limiting_) {
  live_memories.fetch_add(1, std::memory_order_relaxed);
}

WorkingMemory::~WorkingMemory() { live_memories.fetch_sub(1, std::memory_order_relaxed); }

WorkingMemory::Owner WorkingMemory::create(size_t limit) {
  return Owner(new WorkingMemory(limit, cpu_allocator(), true));
}

WorkingMemory::Owner WorkingMemory::create(size_t limit, Allocator& upstream) {
  return Owner(new WorkingMemory(limit, upstream, false));
}

WorkingMemory::Owner WorkingMemory::create(size_t limit, std::unique_ptr<Allocator> cache) {
  Allocator& upstream = *cache;
  return Owner(new WorkingMemory(limit, upstream, false, std::move(cache)));
}

void* WorkingMemory::allocate(size_t nbytes, StreamRef stream) {
  void* data = nullptr;
  try {
    data = statistics_.allocate(nbytes, stream);
  } catch (const OutOfMemory&) {
    // What can never fit is worth nobody's memory.
    if (reclaim_ == nullptr || nbytes > limiting_.limit() || !reclaim_()) throw;
    data = statistics_.allocate(nbytes, stream);
  }
  references_.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void WorkingMemory::deallocate(void* data, size_t nbytes, StreamRef stream) noexcept {
  statistics_.deallocate(data, nbytes, stream);
  if (retired_.load(std::memory_order_acquire)) [[unlikely]]
    return_cached();
  drop_reference();
}

void WorkingMemory::retire() noexcept {
  retired_.store(true, std::memory_order_release);
  return_cached();
  drop_reference();
}

void WorkingMemory::return_cached() noexcept {
  if (caches_) caching_.trim();
  if (cache_ != nullptr) cache_->trim();
}

void WorkingMemory::drop_reference() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

int64_t WorkingMemory::live_count() noexcept { return live_memories.load(); }

}  // namespace cudaexec
