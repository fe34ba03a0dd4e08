#include "memory/limiting_allocator.h"

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {

void* LimitingAllocator::allocate(size_t nbytes, StreamRef stream) {
  size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (nbytes > limit_ || used > limit_ - nbytes) {
      throw OutOfMemory(str("the memory limit is reached: ", nbytes, " bytes asked for, ", used,
                            " in use, limit ", limit_,
                            "; raise the limit, or use smaller inputs and drop outputs that are no "
                            "longer needed"));
    }
  } while (!used_.compare_exchange_weak(used, used + nbytes, std::memory_order_relaxed));
  try {
    return upstream_.allocate(nbytes, stream);
  } catch (...) {
    used_.fetch_sub(nbytes, std::memory_order_relaxed);
    throw;
  }
}

void LimitingAllocator::deallocate(void* data, size_t nbytes, StreamRef stream) noexcept {
  upstream_.deallocate(data, nbytes, stream);
  used_.fetch_sub(nbytes, std::memory_order_relaxed);
}

}  // namespace cudaexec
