#include "python/device_copy.h"

#include "device/cuda/cuda_device.h"
#include "device/cuda/strided_copy.h"
#include "memory/cuda_pool_allocator.h"

namespace cudaexec::python {
namespace {

Dims byte_strides(const Tensor& tensor) {
  Dims strides = tensor.strides();
  for (int64_t& stride : strides) stride *= static_cast<int64_t>(tensor.itemsize());
  return strides;
}

/// Whether the memory from the first to the last element is no larger than packed elements.
bool is_dense(const Tensor& tensor) {
  for (const int64_t stride : tensor.strides()) {
    if (stride < 0) return false;
  }
  return extent(tensor.sizes(), tensor.strides()) == tensor.numel();
}

}  // namespace

Tensor copy_on_device(const Tensor& tensor, StreamRef stream) {
  const Device place = tensor.device();
  CudaDevice& device = cuda_device(place.index);
  Tensor copy =
      Tensor::empty(tensor.sizes(), tensor.dtype(), place, cuda_allocator(place.index), stream);
  if (copy.numel() == 0) return copy;
  const Dims to = byte_strides(copy);
  const Dims from = byte_strides(tensor);
  cuda_strided_copy(device, copy.data(), {to.data(), to.size()}, tensor.data(),
                    {from.data(), from.size()}, {tensor.sizes().data(), tensor.sizes().size()},
                    tensor.itemsize(), stream);
  return copy;
}

Tensor copy_to_host(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const StreamRef stream = tensor.storage()->stream();
  const Tensor dense = is_dense(tensor) ? tensor : copy_on_device(tensor, stream);
  Tensor host = Tensor::empty_strided(dense.sizes(), dense.strides(), dense.dtype(), Device{},
                                      cpu_allocator(), StreamRef{});
  if (host.numel() == 0) return host;
  CudaDevice& device = cuda_device(tensor.device().index);
  device.copy(host.data(), Device{}, dense.data(), tensor.device(), dense.nbytes(), stream);
  device.synchronize(stream);
  return host;
}

}  // namespace cudaexec::python
