// What generated code reads from a tensor. Returned pointers are borrowed from the handle.
#include <cstdint>

#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"

using cudaexec::AtenTensorHandle;
using cudaexec::tensor_from;

namespace {

size_t checked_dim(const cudaexec::Tensor& tensor, int64_t dim) {
  if (dim < -tensor.dim() || dim >= tensor.dim()) {
    throw cudaexec::ShapeError(
        cudaexec::str("dimension ", dim, " of a tensor with ", tensor.dim(), " dimensions"));
  }
  return static_cast<size_t>(dim < 0 ? dim + tensor.dim() : dim);
}

int64_t* borrowed(const cudaexec::Dims& dims) {
  return const_cast<int64_t*>(
      dims.data());  // the interface has no const; generated code only reads
}

}  // namespace

#define CUDAEXEC_GETTER(NAME, TYPE, VALUE)                                         \
  CUDAEXEC_SHIM int32_t aoti_torch_##NAME(AtenTensorHandle handle, TYPE* result) { \
    CUDAEXEC_SHIM_BEGIN                                                            \
    [[maybe_unused]] const cudaexec::Tensor& tensor = tensor_from(handle);         \
    *result = VALUE;                                                               \
    CUDAEXEC_SHIM_END                                                              \
  }

CUDAEXEC_GETTER(get_data_ptr, void*, tensor.defined() ? tensor.data() : nullptr)
CUDAEXEC_GETTER(get_sizes, int64_t*, borrowed(tensor.sizes()))
CUDAEXEC_GETTER(get_strides, int64_t*, borrowed(tensor.strides()))
CUDAEXEC_GETTER(get_dtype, int32_t, static_cast<int32_t>(tensor.dtype()))
CUDAEXEC_GETTER(get_dim, int64_t, tensor.dim())
CUDAEXEC_GETTER(get_numel, int64_t, tensor.numel())
CUDAEXEC_GETTER(get_storage_offset, int64_t, tensor.offset())
CUDAEXEC_GETTER(get_storage_size, int64_t,
                tensor.defined() ? static_cast<int64_t>(tensor.storage()->nbytes()) : 0)
CUDAEXEC_GETTER(get_storage_numel, int64_t,
                tensor.defined()
                    ? static_cast<int64_t>(tensor.storage()->nbytes() / tensor.itemsize())
                    : 0)
CUDAEXEC_GETTER(get_device_type, int32_t,
                tensor.defined() ? static_cast<int32_t>(tensor.device().type) : 0)
CUDAEXEC_GETTER(get_device_index, int32_t, tensor.defined() ? tensor.device().index : 0)
CUDAEXEC_GETTER(get_layout, int32_t, 0)
CUDAEXEC_GETTER(is_defined, bool, tensor.defined())
CUDAEXEC_GETTER(is_contiguous, bool, tensor.is_contiguous())

CUDAEXEC_SHIM int32_t aoti_torch_get_size(AtenTensorHandle handle, int64_t dim, int64_t* result) {
  CUDAEXEC_SHIM_BEGIN
  const cudaexec::Tensor& tensor = tensor_from(handle);
  *result = tensor.size(checked_dim(tensor, dim));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_get_stride(AtenTensorHandle handle, int64_t dim, int64_t* result) {
  CUDAEXEC_SHIM_BEGIN
  const cudaexec::Tensor& tensor = tensor_from(handle);
  *result = tensor.stride(checked_dim(tensor, dim));
  CUDAEXEC_SHIM_END
}
