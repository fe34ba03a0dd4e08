#include "tensor/storage.h"

#include "base/object_cache.h"

namespace cudaexec {
namespace {

std::atomic<int64_t> live_storages{0};

using StorageCache = ObjectCache<sizeof(Storage)>;

}  // namespace

void* Storage::operator new(size_t) { return StorageCache::take(); }

void Storage::operator delete(void* storage) noexcept { StorageCache::give(storage); }

Storage::Storage(void* data, size_t nbytes, Device device) noexcept
    : data_(data), nbytes_(nbytes), device_(device) {
  live_storages.fetch_add(1, std::memory_order_relaxed);
}

Storage::~Storage() {
  delete attachment_.load();
  if (allocator_ != nullptr && data_ != nullptr) allocator_->deallocate(data_, nbytes_, stream_);
  live_storages.fetch_sub(1, std::memory_order_relaxed);
}

StoragePtr Storage::allocate(size_t nbytes, Device device, Allocator& allocator, StreamRef stream) {
  StoragePtr storage(new Storage(nullptr, nbytes, device));
  storage->allocator_ = &allocator;
  storage->stream_ = stream;
  if (nbytes != 0) storage->data_ = allocator.allocate(nbytes, stream);
  return storage;
}

StoragePtr Storage::allocate(size_t nbytes, Device device, std::shared_ptr<Allocator> allocator,
                             StreamRef stream) {
  StoragePtr storage = allocate(nbytes, device, *allocator, stream);
  storage->owner_ = std::move(allocator);
  return storage;
}

StoragePtr Storage::borrow(void* data, size_t nbytes, Device device, std::shared_ptr<void> owner,
                           StreamRef stream) {
  StoragePtr storage(new Storage(data, nbytes, device));
  storage->stream_ = stream;
  storage->owner_ = std::move(owner);
  return storage;
}

StorageAttachment& Storage::attachment(std::unique_ptr<StorageAttachment> (*make)()) {
  StorageAttachment* current = attachment_.load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  std::unique_ptr<StorageAttachment> made = make();
  if (attachment_.compare_exchange_strong(current, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *current;  // another thread was first
}

int64_t Storage::live_count() noexcept { return live_storages.load(); }

}  // namespace cudaexec
