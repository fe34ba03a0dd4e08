// Reference-counted bytes on a device: owned through an allocator, borrowed, or kept alive by
// somebody else's owner. Storage of an immutable weight also carries what kernels derive from it
// (packed operands), so that it is derived once however many methods use the weight.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/export.h"
#include "device/device.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Base of what a kernel attaches to a constant (see PackCache in ops/).
class CUDAEXEC_API StorageAttachment {
 public:
  virtual ~StorageAttachment() = default;
};

class StoragePtr;

class CUDAEXEC_API Storage {
 public:
  /// Memory from `allocator`, which must outlive it; freed on `stream`. nbytes may be 0.
  static StoragePtr allocate(size_t nbytes, Device device, Allocator& allocator, StreamRef stream);
  /// As above; the storage keeps `allocator` alive.
  static StoragePtr allocate(size_t nbytes, Device device, std::shared_ptr<Allocator> allocator,
                             StreamRef stream);
  /// Somebody else's memory; `owner` (may be null: the caller guarantees the lifetime) is kept
  /// alive. `stream`: where the bytes are ready (GPU memory).
  static StoragePtr borrow(void* data, size_t nbytes, Device device, std::shared_ptr<void> owner,
                           StreamRef stream = StreamRef());

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] size_t nbytes() const noexcept { return nbytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Where the bytes become ready and are freed: work put on this stream follows what made them.
  /// Null on the CPU; on a GPU null means its legacy default stream. Memory that is not allocated
  /// by us has the stream that its owner named, else null.
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
  /// False for borrowed memory: callers' inputs, weights in the mapped file.
  [[nodiscard]] bool is_owned() const noexcept { return allocator_ != nullptr; }

  /// Marks the bytes as a weight that nobody writes, so kernels may keep derived forms of it.
  void mark_constant() noexcept { constant_ = true; }
  [[nodiscard]] bool is_constant() const noexcept { return constant_; }
  /// The attachment, created by `make` on first use (thread-safe). Only for constants.
  StorageAttachment& attachment(std::unique_ptr<StorageAttachment> (*make)());

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Calls make and drop these objects all the time: each thread keeps some for its next ones.
  static void* operator new(size_t nbytes);
  static void operator delete(void* storage) noexcept;

  void add_ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Takes a reference unless the last one is gone, for tables that do not keep their entries
  /// alive. The caller makes sure that the object itself still exists.
  [[nodiscard]] bool try_add_ref() noexcept {
    int64_t refs = refs_.load(std::memory_order_relaxed);
    while (refs > 0) {
      if (refs_.compare_exchange_weak(refs, refs + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_unique() const noexcept { return refs_.load() == 1; }

  /// Storages alive in the process: leak tests compare it.
  static int64_t live_count() noexcept;

 private:
  Storage(void* data, size_t nbytes, Device device) noexcept;
  ~Storage();

  std::atomic<int64_t> refs_{1};
  void* data_;
  size_t nbytes_;
  Device device_;
  bool constant_ = false;
  Allocator* allocator_ = nullptr;
  StreamRef stream_;
  std::shared_ptr<void> owner_;
  std::atomic<StorageAttachment*> attachment_{nullptr};
};

/// Intrusive pointer to Storage.
class StoragePtr {
 public:
  StoragePtr() noexcept = default;
  /// Takes over one reference.
  explicit StoragePtr(Storage* adopted) noexcept : storage_(adopted) {}
  StoragePtr(const StoragePtr& other) noexcept : storage_(other.storage_) {
    if (storage_ != nullptr) storage_->add_ref();
  }
  StoragePtr(StoragePtr&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StoragePtr& operator=(StoragePtr other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StoragePtr() {
    if (storage_ != nullptr) storage_->release();
  }
  [[nodiscard]] Storage* get() const noexcept { return storage_; }
  Storage* operator->() const noexcept { return storage_; }
  Storage& operator*() const noexcept { return *storage_; }
  explicit operator bool() const noexcept { return storage_ != nullptr; }
  friend bool operator==(const StoragePtr&, const StoragePtr&) = default;

 private:
  Storage* storage_ = nullptr;
};

}  // namespace cudaexec
