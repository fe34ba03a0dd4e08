// Copying and filling tensors.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"
#include "tensor/device_copy.h"
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
  const cudaexec::OpContext context = cudaexec::op_context_for(self.device());
  return Tensor::empty_strided(self.sizes(), strides, self.dtype(), self.device(),
                               context.allocator, context.stream);
}

void copy_elements(const Tensor& dst, const Tensor& src) {
  const cudaexec::OpContext context = cudaexec::current_op_context();
  cudaexec::copy_elements(dst, src, context.allocator, context.stream);
}

// torch's clone(): keeps the strides of a dense tensor and the order of dimensions of any other.
Tensor clone(const Tensor& self) {
  Tensor copy = empty_like(self, is_dense(self) ? self.strides() : dense_strides(self));
  copy_elements(copy, self);
  return copy;
}

// The same strides, gaps and overlaps included: the bytes of the whole extent.
Tensor clone_preserving(const Tensor& self) {
  Tensor copy = empty_like(self, self.strides());
  cudaexec::copy_extent(copy, self, cudaexec::current_op_context().stream);
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
  if (!(a.device() == b.device())) return false;
  const auto* a_begin = static_cast<const std::byte*>(a.data());
  const auto* b_begin = static_cast<const std::byte*>(b.data());
  const auto bytes = [](const Tensor& t) {
    return cudaexec::extent(t.sizes(), t.strides()) * static_cast<int64_t>(t.itemsize());
  };
  return a_begin < b_begin + bytes(b) && b_begin < a_begin + bytes(a);
}

// Both have the same sizes. What has to be converted is converted on the host.
void convert(const Tensor& dst, const Tensor& src) {
  const bool from_host = src.device().is_cpu();
  if (from_host && dst.device().is_cpu()) {
    cudaexec::strided_convert(dst, src);
    return;
  }
  if (!from_host && !dst.device().is_cpu()) {
    throw cudaexec::NotSupported(str("a copy from ", cudaexec::describe(src), " to ",
                                     cudaexec::describe(dst), " on ",
                                     cudaexec::to_string(dst.device()),
                                     " would have to convert; convert in the model (x.to(dtype))"));
  }
  const Tensor between =
      Tensor::empty(src.sizes(), from_host ? dst.dtype() : src.dtype(), cudaexec::Device{},
                    cudaexec::cpu_allocator(), cudaexec::StreamRef());
  if (from_host) {
    cudaexec::strided_convert(between, src);
    copy_elements(dst, between);
  } else {
    copy_elements(between, src);
    cudaexec::strided_convert(dst, between);
  }
}

// torch's copy_(): broadcasts, converts, and reads everything before it writes. A copy to the host
// is done on return, also where the program would wait for it later.
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
    copy_elements(dst, source);
  } else {
    convert(dst, source);
  }
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
  cudaexec::zero_elements(tensor_from(self), cudaexec::current_op_context().stream);
  CUDAEXEC_SHIM_END
}
