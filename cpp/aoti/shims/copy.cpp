// Copying and filling tensors.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"
#include "tensor/strided_copy.h"

using cudaexec::AtenTensorHandle;
using cudaexec::Dims;
using cudaexec::new_handle;
using cudaexec::str;
using cudaexec::Tensor;
using cudaexec::tensor_from;

namespace {

// Dimensions from the largest stride to the smallest, equal ones in place.
std::vector<size_t> by_stride(const Tensor& tensor) {
  std::vector<size_t> order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensor.stride(a) > tensor.stride(b); });
  return order;
}

// Strides of a tensor without gaps that keeps the order of dimensions.
Dims dense_strides(const Tensor& tensor) {
  Dims strides(static_cast<size_t>(tensor.dim()));
  const std::vector<size_t> order = by_stride(tensor);
  int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = step;
    step *= std::max<int64_t>(tensor.size(*dim), 1);
  }
  return strides;
}

// Neither gaps nor overlaps: the strides are those of some order of the dimensions.
bool is_dense(const Tensor& tensor) {
  const Dims dense = dense_strides(tensor);
  for (size_t i = 0; i < dense.size(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != dense[i]) return tensor.numel() == 0;
  }
  return true;
}

Tensor empty_like(const Tensor& self, std::span<const int64_t> strides) {
  const cudaexec::OpContext context = cudaexec::current_op_context();
  return Tensor::empty_strided(self.sizes(), strides, self.dtype(), self.device(),
                               context.allocator, context.stream);
}

// torch's clone(): keeps the strides of a dense tensor and the order of dimensions of any other.
Tensor clone(const Tensor& self) {
  Tensor copy = empty_like(self, is_dense(self) ? self.strides() : dense_strides(self));
  cudaexec::strided_copy(copy, self);
  return copy;
}

// The same strides, gaps and overlaps included: the bytes of the whole extent.
Tensor clone_preserving(const Tensor& self) {
  Tensor copy = empty_like(self, self.strides());
  const int64_t elements = cudaexec::extent(self.sizes(), self.strides());
  if (elements > 0) {
    std::memcpy(copy.data(), self.data(), static_cast<size_t>(elements) * self.itemsize());
  }
  return copy;
}

Tensor expanded(const Tensor& src, const Dims& sizes) {
  Dims strides(sizes.size(), 0);
  const size_t added = sizes.size() - std::min(sizes.size(), src.sizes().size());
  bool fits = src.sizes().size() <= sizes.size();
  for (size_t i = 0; fits && i < src.sizes().size(); ++i) {
    if (src.size(i) == sizes[added + i]) {
      strides[added + i] = src.stride(i);
    } else if (src.size(i) != 1) {
      fits = false;
    }
  }
  if (!fits) {
    throw cudaexec::ShapeError(str("a tensor of sizes ", cudaexec::list_str(src.sizes()),
                                   " cannot be copied to one of sizes ",
                                   cudaexec::list_str(sizes)));
  }
  return {src.storage(), src.offset(), sizes, std::move(strides), src.dtype()};
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  const auto* a_begin = static_cast<const std::byte*>(a.data());
  const auto* b_begin = static_cast<const std::byte*>(b.data());
  const auto bytes = [](const Tensor& t) {
    return cudaexec::extent(t.sizes(), t.strides()) * static_cast<int64_t>(t.itemsize());
  };
  return a_begin < b_begin + bytes(b) && b_begin < a_begin + bytes(a);
}

// torch's copy_(): broadcasts, converts, and reads everything before it writes.
void copy(const Tensor& dst, const Tensor& src) {
  Tensor source = expanded(src, dst.sizes());
  if (dst.numel() == 0) return;
  if (may_overlap(dst, source)) {
    if (dst.data() == source.data() && dst.strides() == source.strides() &&
        dst.dtype() == source.dtype()) {
      return;
    }
    source = expanded(clone(src), dst.sizes());
  }
  if (dst.dtype() == source.dtype()) {
    cudaexec::strided_copy(dst, source);
  } else {
    cudaexec::strided_convert(dst, source);
  }
}

void zero(const Tensor& self) {
  if (self.numel() == 0) return;
  if (is_dense(self)) {
    std::memset(self.data(), 0, self.nbytes());
    return;
  }
  uint64_t bytes = 0;
  const Tensor zero(cudaexec::Storage::borrow(&bytes, sizeof(bytes), {}, nullptr), 0, {}, {},
                    self.dtype());
  cudaexec::strided_copy(self, expanded(zero, self.sizes()));
}

}  // namespace

CUDAEXEC_SHIM int32_t aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(clone(tensor_from(self)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_clone_preserve_strides(AtenTensorHandle self,
                                                        AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(clone_preserving(tensor_from(self)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle src,
                                       int32_t /*non_blocking*/) {
  CUDAEXEC_SHIM_BEGIN
  copy(tensor_from(self), tensor_from(src));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_tensor_copy_(AtenTensorHandle src, AtenTensorHandle dst) {
  CUDAEXEC_SHIM_BEGIN
  copy(tensor_from(dst), tensor_from(src));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_zero_(AtenTensorHandle self) {
  CUDAEXEC_SHIM_BEGIN
  zero(tensor_from(self));
  CUDAEXEC_SHIM_END
}
