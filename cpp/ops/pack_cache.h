// What operators derive from a constant operand (packed panels, reordered convolution weights),
// kept in the constant's storage so that it is made once for every program that uses the weight.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "tensor/dims.h"
#include "tensor/storage.h"

namespace cudaexec::ops {

/// Base of a packed form. Adds its bytes to packed_bytes() while it lives.
class CUDAEXEC_API PackedForm {
 public:
  explicit PackedForm(size_t nbytes) noexcept;
  virtual ~PackedForm();
  PackedForm(const PackedForm&) = delete;
  PackedForm& operator=(const PackedForm&) = delete;

 private:
  size_t nbytes_;
};

/// Packed memory of one block from the CPU allocator, on huge pages where they help.
class CUDAEXEC_API PackedBlock : public PackedForm {
 public:
  /// @throws OutOfMemory.
  explicit PackedBlock(size_t nbytes);
  ~PackedBlock() override;
  [[nodiscard]] char* data() const noexcept { return data_; }

 private:
  size_t nbytes_;
  char* data_;
};

class CUDAEXEC_API PackCache : public StorageAttachment {
 public:
  PackCache() noexcept = default;
  ~PackCache() override;

  /// The cache of a constant.
  static PackCache& of(Storage& constant);

  /// The form of this key, made by `make` on the first call; later calls take no lock. `key` has to
  /// tell everything the form depends on: its kind, dtype, offset, sizes, strides, kernels.
  /// If `make` throws nothing is kept and the next call tries again. Thread-safe.
  PackedForm& get(std::span<const int64_t> key,
                  const std::function<std::unique_ptr<PackedForm>()>& make);

 private:
  struct Entry {
    Dims key;
    std::unique_ptr<PackedForm> form;
    Entry* next;
  };
  [[nodiscard]] PackedForm* find(std::span<const int64_t> key) const noexcept;

  std::atomic<Entry*> entries_{nullptr};
  ForkMutex making_;
};

/// First number of a key, so that kinds do not meet.
enum class PackKind : int64_t { kGemmB = 1, kGatheredConvolution, kOnednnConvolution };

/// Bytes of all packed forms alive, and how many were made since the process started.
CUDAEXEC_API int64_t packed_bytes() noexcept;
CUDAEXEC_API int64_t packed_count() noexcept;

}  // namespace cudaexec::ops
