// A strided view of a storage. This is what an AtenTensorHandle of generated code points to.
#pragma once

#include <cstdint>
#include <span>

#include "base/export.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "tensor/storage.h"

namespace cudaexec {

class CUDAEXEC_API Tensor {
 public:
  Tensor() noexcept = default;
  /// A view; `offset` and `strides` are in elements. The caller has checked that it stays inside.
  Tensor(StoragePtr storage, int64_t offset, Dims sizes, Dims strides, Dtype dtype) noexcept
      : storage_(std::move(storage)),
        offset_(offset),
        sizes_(std::move(sizes)),
        strides_(std::move(strides)),
        dtype_(dtype) {}

  /// Uninitialised memory for `sizes` with `strides` (non-negative, in elements).
  /// @throws ShapeError if a size is negative or the byte count overflows, OutOfMemory.
  static Tensor empty_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                              Dtype dtype, Device device, Allocator& allocator, StreamRef stream);
  /// Row-major contiguous.
  static Tensor empty(std::span<const int64_t> sizes, Dtype dtype, Device device,
                      Allocator& allocator, StreamRef stream);

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(storage_); }
  [[nodiscard]] const StoragePtr& storage() const noexcept { return storage_; }
  [[nodiscard]] int64_t offset() const noexcept { return offset_; }
  [[nodiscard]] const Dims& sizes() const noexcept { return sizes_; }
  [[nodiscard]] const Dims& strides() const noexcept { return strides_; }
  [[nodiscard]] int64_t size(size_t dim) const noexcept { return sizes_[dim]; }
  [[nodiscard]] int64_t stride(size_t dim) const noexcept { return strides_[dim]; }
  [[nodiscard]] int64_t dim() const noexcept { return static_cast<int64_t>(sizes_.size()); }
  [[nodiscard]] Dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return storage_->device(); }
  [[nodiscard]] size_t itemsize() const noexcept { return dtype_size(dtype_); }

  [[nodiscard]] int64_t numel() const noexcept;
  /// Bytes of the elements if they were packed: numel * itemsize.
  [[nodiscard]] size_t nbytes() const noexcept { return static_cast<size_t>(numel()) * itemsize(); }
  /// First element; null for an empty storage.
  [[nodiscard]] void* data() const noexcept {
    auto* base = static_cast<std::byte*>(storage_->data());
    return base == nullptr ? nullptr : base + offset_ * static_cast<int64_t>(itemsize());
  }
  template <typename T>
  [[nodiscard]] T* data_as() const noexcept {
    return static_cast<T*>(data());
  }
  /// Row-major contiguous; strides of dimensions of size 1 do not matter, empty tensors are.
  [[nodiscard]] bool is_contiguous() const noexcept;

  /// A view of the same storage, checked against its size. @throws ShapeError if it does not fit.
  [[nodiscard]] Tensor view(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                            int64_t offset) const;

 private:
  StoragePtr storage_;
  int64_t offset_ = 0;
  Dims sizes_;
  Dims strides_;
  Dtype dtype_ = Dtype::kFloat32;
};

/// Row-major strides in elements (torch's rule: a size of 0 counts as 1).
CUDAEXEC_API Dims contiguous_strides(std::span<const int64_t> sizes);
/// Elements spanned from the first to the last + 1; 0 for empty. @throws ShapeError on overflow.
CUDAEXEC_API int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides);
/// "float32[2, 64]"
CUDAEXEC_API std::string describe(const Tensor& tensor);

}  // namespace cudaexec
