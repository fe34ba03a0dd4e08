#include "tensor/tensor.h"

#include <limits>
#include <optional>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec {

Dims contiguous_strides(std::span<const int64_t> sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    const auto next = checked_mul(step, std::max<int64_t>(sizes[i], 1));
    if (!next) throw ShapeError(str("sizes ", list_str(sizes), " overflow 64 bits"));
    step = *next;
  }
  return strides;
}

int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) throw ShapeError(str("negative size in ", list_str(sizes)));
    if (sizes[i] == 0) return 0;
    if (strides[i] < 0) throw ShapeError(str("negative stride in ", list_str(strides)));
    const auto step = checked_mul(sizes[i] - 1, strides[i]);
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum || *sum == std::numeric_limits<int64_t>::max()) {
      throw ShapeError(
          str("sizes ", list_str(sizes), " with strides ", list_str(strides), " overflow 64 bits"));
    }
    last = *sum;
  }
  return last + 1;
}

Tensor Tensor::empty_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                             Dtype dtype, Device device, Allocator& allocator, StreamRef stream) {
  if (sizes.size() != strides.size()) {
    throw ShapeError(
        str("sizes ", list_str(sizes), " and strides ", list_str(strides), " differ in rank"));
  }
  const auto nbytes =
      checked_mul<int64_t>(extent(sizes, strides), static_cast<int64_t>(dtype_size(dtype)));
  if (!nbytes) throw ShapeError(str("sizes ", list_str(sizes), " overflow 64 bits"));
  StoragePtr storage = Storage::allocate(static_cast<size_t>(*nbytes), device, allocator, stream);
  return {std::move(storage), 0, Dims(sizes), Dims(strides), dtype};
}

Tensor Tensor::empty(std::span<const int64_t> sizes, Dtype dtype, Device device,
                     Allocator& allocator, StreamRef stream) {
  const Dims strides = contiguous_strides(sizes);
  return empty_strided(sizes, strides, dtype, device, allocator, stream);
}

int64_t Tensor::numel() const noexcept {
  int64_t count = 1;
  for (const int64_t size : sizes_) count *= size;
  return count;
}

bool Tensor::is_contiguous() const noexcept {
  int64_t step = 1;
  for (size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] == 0) return true;
    if (sizes_[i] != 1 && strides_[i] != step) return numel() == 0;
    step *= sizes_[i];
  }
  return true;
}

Tensor Tensor::view(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                    int64_t offset) const {
  const auto end = checked_add(offset, extent(sizes, strides));
  const auto capacity = static_cast<int64_t>(storage_->nbytes() / itemsize());
  if (offset < 0 || !end || *end > capacity) {
    throw ShapeError(str("a view of sizes ", list_str(sizes), ", strides ", list_str(strides),
                         ", offset ", offset, " leaves a storage of ", capacity, " elements"));
  }
  return {storage_, offset, Dims(sizes), Dims(strides), dtype_};
}

std::string describe(const Tensor& tensor) {
  return str(dtype_name(tensor.dtype()), list_str(tensor.sizes()));
}

}  // namespace cudaexec
