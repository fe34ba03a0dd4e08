#include "memory/caching_allocator.h"

#include <bit>
#include <new>
#include <utility>

#include "base/error.h"

namespace cudaexec {
namespace {

constexpr size_t kSmallest = 64;
constexpr unsigned kSmallestLog = 6;
constexpr size_t kLargest = size_t{1} << 47;  // larger requests are not cached

/// Class c holds blocks of class_size(c) bytes: 64, 80, 96, 112, 128, 160, ...
constexpr size_t class_size(size_t index) noexcept {
  return (4 + index % 4) << (kSmallestLog - 2 + index / 4);
}

/// The smallest class that holds `nbytes`, 0 < nbytes <= kLargest.
constexpr size_t class_of(size_t nbytes) noexcept {
  if (nbytes <= kSmallest) return 0;
  const size_t last = nbytes - 1;
  const auto log = static_cast<unsigned>(std::bit_width(last)) - 1;  // 2^log <= last
  const size_t quarter = (last >> (log - 2)) & 3;
  return (log - kSmallestLog) * 4 + quarter + 1;
}

static_assert(class_of(64) == 0 && class_of(65) == 1 && class_of(80) == 1 && class_of(81) == 2);
static_assert(class_of(128) == 4 && class_of(129) == 5 && class_size(class_of(129)) == 160);
static_assert(class_size(class_of(kLargest)) == kLargest);

}  // namespace

CachingAllocator::CachingAllocator(Allocator& upstream, size_t max_cached) noexcept
    : upstream_(upstream), max_cached_(max_cached) {}

CachingAllocator::~CachingAllocator() { trim(); }

size_t CachingAllocator::rounded(size_t nbytes) noexcept {
  return nbytes > kLargest ? nbytes : class_size(class_of(nbytes));
}

void* CachingAllocator::allocate(size_t nbytes, StreamRef stream) {
  const size_t block_nbytes = rounded(nbytes);
  if (nbytes <= kLargest) {
    const std::lock_guard lock(mutex_);
    FreeBlock*& head = free_[class_of(nbytes)];
    if (head != nullptr) {
      FreeBlock* block = head;
      head = block->next;
      cached_ -= block_nbytes;
      return block;
    }
  }
  try {
    return upstream_.allocate(block_nbytes, stream);
  } catch (const OutOfMemory&) {
    if (trim() == 0) throw;
  }
  return upstream_.allocate(block_nbytes, stream);
}

void CachingAllocator::deallocate(void* data, size_t nbytes, StreamRef stream) noexcept {
  const size_t block_nbytes = rounded(nbytes);
  if (nbytes > kLargest || block_nbytes > max_cached_) {
    upstream_.deallocate(data, block_nbytes, stream);
    return;
  }
  FreeBlock* evicted = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (cached_ + block_nbytes > max_cached_) [[unlikely]] {
      size_t released = 0;
      evicted = unlink_above(max_cached_ - block_nbytes, released);
    }
    FreeBlock*& head = free_[class_of(nbytes)];
    head = ::new (data) FreeBlock{head, block_nbytes};
    cached_ += block_nbytes;
  }
  free_list(evicted);
}

size_t CachingAllocator::trim() noexcept {
  FreeBlock* blocks = nullptr;
  size_t released = 0;
  {
    const std::lock_guard lock(mutex_);
    blocks = unlink_above(0, released);
  }
  free_list(blocks);
  return released + upstream_.trim();
}

size_t CachingAllocator::cached() const noexcept {
  const std::lock_guard lock(mutex_);
  return cached_;
}

CachingAllocator::FreeBlock* CachingAllocator::unlink_above(size_t keep, size_t& nbytes) noexcept {
  FreeBlock* list = nullptr;
  for (size_t index = kClasses; index-- > 0 && cached_ > keep;) {
    while (free_[index] != nullptr && cached_ > keep) {
      FreeBlock* block = std::exchange(free_[index], free_[index]->next);
      block->next = std::exchange(list, block);
      cached_ -= block->nbytes;
      nbytes += block->nbytes;
    }
  }
  return list;
}

void CachingAllocator::free_list(FreeBlock* list) noexcept {
  while (list != nullptr) {
    FreeBlock* block = std::exchange(list, list->next);
    upstream_.deallocate(block, block->nbytes, {});
  }
}

}  // namespace cudaexec
