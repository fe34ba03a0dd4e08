#include "ops/cuda/device_tensor.h"

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/strided_copy.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

Dims byte_strides(const Tensor& tensor) {
  Dims strides = tensor.strides();
  for (int64_t& stride : strides) stride *= static_cast<int64_t>(tensor.itemsize());
  return strides;
}

std::pair<const std::byte*, const std::byte*> bounds(const Tensor& tensor) {
  const auto* first = tensor.data_as<const std::byte>();
  return {first, first + extent(tensor.sizes(), tensor.strides()) *
                             static_cast<int64_t>(tensor.itemsize())};
}

}  // namespace

CudaDevice& common_device(const char* op, std::initializer_list<NamedTensor> operands) {
  const auto& [first_name, first] = *operands.begin();
  for (const auto& [name, tensor] : operands) {
    if (tensor->device().is_cpu() || tensor->device() != first->device()) {
      throw DeviceError(str(op, ": ", name, " is on ", to_string(tensor->device()), " and ",
                            first_name, " on ", to_string(first->device()),
                            "; expected one GPU for all"));
    }
  }
  return cuda_device(first->device().index);
}

Tensor empty(CudaDevice& device, std::span<const int64_t> sizes, Dtype dtype,
             const OpContext& context) {
  return Tensor::empty(sizes, dtype, device.device(), context.allocator, context.stream);
}

Tensor empty_strided(CudaDevice& device, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides, Dtype dtype, const OpContext& context) {
  return Tensor::empty_strided(sizes, strides, dtype, device.device(), context.allocator,
                               context.stream);
}

void copy(CudaDevice& device, const Tensor& dst, const Tensor& src, StreamRef stream) {
  if (dst.dtype() != src.dtype() || dst.sizes() != src.sizes()) {
    throw InternalError(str("a GPU copy from ", describe(src), " to ", describe(dst)));
  }
  cuda_strided_copy(device, dst.data(), byte_strides(dst), src.data(), byte_strides(src),
                    dst.sizes(), dst.itemsize(), stream);
}

void fill_zero(CudaDevice& device, const Tensor& dst, StreamRef stream) {
  const unsigned char zero[16] = {};
  cuda_strided_fill(device, dst.data(), byte_strides(dst), dst.sizes(), zero, dst.itemsize(),
                    stream);
}

Tensor contiguous(CudaDevice& device, const Tensor& tensor, const OpContext& context) {
  if (tensor.is_contiguous()) return tensor;
  Tensor result = empty(device, tensor.sizes(), tensor.dtype(), context);
  copy(device, result, tensor, context.stream);
  return result;
}

Tensor clone(CudaDevice& device, const Tensor& tensor, const OpContext& context) {
  Tensor result =
      empty_strided(device, tensor.sizes(), ops::strides_like(tensor), tensor.dtype(), context);
  copy(device, result, tensor, context.stream);
  return result;
}

Tensor dim_last(const Tensor& self, size_t dim) {
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  if (sizes.empty()) return {self.storage(), self.offset(), Dims{1}, Dims{1}, self.dtype()};
  for (size_t i = dim; i + 1 < sizes.size(); ++i) {
    std::swap(sizes[i], sizes[i + 1]);
    std::swap(strides[i], strides[i + 1]);
  }
  return {self.storage(), self.offset(), std::move(sizes), std::move(strides), self.dtype()};
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_begin, a_end] = bounds(a);
  const auto [b_begin, b_end] = bounds(b);
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace cudaexec::gpu
