#include "memory/cuda_block_cache.h"

#include <bit>
#include <utility>

#include "base/error.h"
#include "device/cuda/driver.h"

namespace cudaexec {

CudaBlockCache::CudaBlockCache(CudaDevice& device, Allocator& upstream)
    : device_(device), upstream_(upstream) {
  blocks_.reserve(kMostBlocks);
}

CudaBlockCache::~CudaBlockCache() { empty(); }

/// Four sizes a power of two, from the 512 bytes that a pool gives at least.
size_t CudaBlockCache::rounded(size_t nbytes) noexcept {
  if (nbytes <= 512) return 512;
  const size_t step = std::bit_floor(nbytes - 1) / 4;
  return (nbytes + step - 1) / step * step;
}

void* CudaBlockCache::allocate(size_t nbytes, StreamRef stream) {
  if (nbytes > kMostOfBlock) return upstream_.allocate(nbytes, stream);
  const size_t wanted = rounded(nbytes);
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].nbytes != wanted || blocks_[i].stream != stream) continue;
      void* const data = blocks_[i].data;
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      return data;
    }
  }
  try {
    return upstream_.allocate(wanted, stream);
  } catch (const OutOfMemory&) {
    if (empty() == 0) throw;
  }
  return upstream_.allocate(wanted, stream);
}

void CudaBlockCache::deallocate(void* data, size_t nbytes, StreamRef stream) noexcept {
  if (nbytes > kMostOfBlock) {
    upstream_.deallocate(data, nbytes, stream);
    return;
  }
  Block victim{data, rounded(nbytes), stream};
  if (cuda::driver_if_initialised() != nullptr &&
      (stream == StreamRef() || stream == device_.thread_stream())) {
    const std::lock_guard lock(mutex_);
    if (blocks_.size() < kMostBlocks) {
      blocks_.push_back(victim);
      return;
    }
    std::swap(victim, blocks_.front());  // an old one goes
  }
  upstream_.deallocate(victim.data, victim.nbytes, victim.stream);
}

size_t CudaBlockCache::empty() noexcept {
  size_t total = 0;
  while (true) {
    Block block{};
    {
      const std::lock_guard lock(mutex_);
      if (blocks_.empty()) return total;
      block = blocks_.back();
      blocks_.pop_back();
    }
    upstream_.deallocate(block.data, block.nbytes, block.stream);
    total += block.nbytes;
  }
}

size_t CudaBlockCache::trim() noexcept {
  const size_t kept = empty();
  // What was kept is among what the pool gives back; the larger number is not counted twice.
  const size_t released = upstream_.trim();
  return released > kept ? released : kept;
}

size_t CudaBlockCache::cached() const noexcept {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const Block& block : blocks_) total += block.nbytes;
  return total;
}

}  // namespace cudaexec
