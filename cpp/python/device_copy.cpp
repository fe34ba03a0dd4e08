#include "python/device_copy.h"

#include "memory/cuda_pool_allocator.h"
#include "tensor/device_copy.h"

namespace cudaexec::python {
namespace {

/// Whether the memory from the first to the last element is no larger than packed elements.
bool is_dense(const Tensor& tensor) {
  for (const int64_t stride : tensor.strides()) {
    if (stride < 0) return false;
  }
  return extent(tensor.sizes(), tensor.strides()) == tensor.numel();
}

}  // namespace

Tensor copy_on_device(const Tensor& tensor, StreamRef stream) {
  Allocator& memory = cuda_allocator(tensor.device().index);
  const Tensor copy =
      Tensor::empty(tensor.sizes(), tensor.dtype(), tensor.device(), memory, stream);
  copy_elements(copy, tensor, memory, stream);
  return copy;
}

Tensor copy_to_host(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const Dims strides = is_dense(tensor) ? tensor.strides() : contiguous_strides(tensor.sizes());
  const Tensor host = Tensor::empty_strided(tensor.sizes(), strides, tensor.dtype(), Device{},
                                            cpu_allocator(), StreamRef{});
  copy_elements(host, tensor, cuda_allocator(tensor.device().index), tensor.storage()->stream());
  return host;
}

}  // namespace cudaexec::python
