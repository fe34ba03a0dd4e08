// Making, sharing and deleting tensors.
#include <cstdint>

#include "aoti/abi.h"
#include "aoti/handle_reuse.h"
#include "aoti/shims/fence.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "base/str.h"
#include "memory/allocator.h"

using cudaexec::AtenTensorHandle;
using cudaexec::CallScope;
using cudaexec::Device;
using cudaexec::DeviceType;
using cudaexec::Dims;
using cudaexec::Dtype;
using cudaexec::new_handle;
using cudaexec::str;
using cudaexec::Tensor;
using cudaexec::tensor_from;

namespace {

using Span = std::span<const int64_t>;

Span span(const int64_t* values, int64_t count) {
  if (count < 0) throw cudaexec::ShapeError(str("a tensor of ", count, " dimensions"));
  return {values, static_cast<size_t>(count)};
}

Dtype checked_dtype(int32_t code) {
  const auto dtype = cudaexec::dtype_from_code(code);
  if (!dtype) {
    throw cudaexec::NotSupported(str("torch's dtype code ", code,
                                     " is not supported; programs may "
                                     "use bool, uint8, int8 to int64, float16, bfloat16, float32 "
                                     "and float64"));
  }
  return *dtype;
}

// A program runs on one GPU: the one it was loaded on, whatever index it was exported with.
Device device_from(int32_t type, int32_t /*index*/) {
  if (type == 0) return {};
  const CallScope* scope = CallScope::current();
  if (scope == nullptr || static_cast<int32_t>(scope->device().type) != type) {
    throw cudaexec::DeviceError(
        str("generated code asks for torch's device type ", type, ", the call runs on ",
            cudaexec::to_string(scope != nullptr ? scope->device() : Device{})));
  }
  return scope->device();
}

Tensor make_empty(Span sizes, Span strides, int32_t dtype, Device device) {
  const cudaexec::OpContext context = cudaexec::op_context_for(device);
  return Tensor::empty_strided(sizes, strides, checked_dtype(dtype), device, context.allocator,
                               context.stream);
}

// A view of memory that the caller keeps alive.
Tensor wrap(void* data, Span sizes, Span strides, int64_t offset, int32_t dtype_code,
            Device device) {
  const Dtype dtype = checked_dtype(dtype_code);
  const auto elements = cudaexec::checked_add(offset, cudaexec::extent(sizes, strides));
  const auto nbytes = elements ? cudaexec::checked_mul<int64_t>(
                                     *elements, static_cast<int64_t>(cudaexec::dtype_size(dtype)))
                               : std::nullopt;
  if (offset < 0 || !nbytes) {
    throw cudaexec::ShapeError(str("a tensor at offset ", offset, " with sizes ",
                                   cudaexec::list_str(sizes), " overflows 64 bits"));
  }
  if (data == nullptr && *nbytes > 0) {
    throw cudaexec::InternalError(
        str("generated code made a tensor of ", *nbytes, " bytes at a null address"));
  }
  const cudaexec::StreamRef stream = cudaexec::op_context_for(device).stream;
  return {cudaexec::Storage::borrow(data, static_cast<size_t>(*nbytes), device, nullptr, stream),
          offset, Dims(sizes), Dims(strides), dtype};
}

// An empty view may start anywhere; torch lets it, and nothing is read through it.
Tensor view_of(const Tensor& tensor, Span sizes, Span strides, int64_t offset) {
  if (cudaexec::extent(sizes, strides) == 0 && offset >= 0) {
    return {tensor.storage(), offset, Dims(sizes), Dims(strides), tensor.dtype()};
  }
  return tensor.view(sizes, strides, offset);
}

}  // namespace

CUDAEXEC_SHIM int32_t aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes,
                                               const int64_t* strides, int32_t dtype,
                                               int32_t device_type, int32_t device_index,
                                               AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(make_empty(span(sizes, ndim), span(strides, ndim), dtype,
                                  device_from(device_type, device_index)));
  CUDAEXEC_SHIM_END
}

// Pageable: pinning costs more than the copies of small tensors gain.
CUDAEXEC_SHIM int32_t aoti_torch_empty_strided_pinned(int64_t ndim, const int64_t* sizes,
                                                      const int64_t* strides, int32_t dtype,
                                                      int32_t device_type, int32_t device_index,
                                                      AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  const Device device = device_from(device_type, device_index);
  if (!device.is_cpu()) {
    throw cudaexec::InternalError(
        str("generated code asks for pinned memory on ", cudaexec::to_string(device)));
  }
  *result = new_handle(make_empty(span(sizes, ndim), span(strides, ndim), dtype, device));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_create_tensor_from_blob(
    void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t offset,
    int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(wrap(data, span(sizes, ndim), span(strides, ndim), offset, dtype,
                            device_from(device_type, device_index)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_create_tensor_from_blob_v2(
    void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t offset,
    int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle* result,
    int32_t layout, const uint8_t* /*opaque_metadata*/, int64_t /*opaque_metadata_size*/) {
  CUDAEXEC_SHIM_BEGIN
  if (layout != 0) {
    throw cudaexec::NotSupported(str("torch's layout code ", layout,
                                     " is not supported; export "
                                     "without freezing, so that weights are plain tensors"));
  }
  *result = new_handle(wrap(data, span(sizes, ndim), span(strides, ndim), offset, dtype,
                            device_from(device_type, device_index)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_delete_tensor_object(AtenTensorHandle handle) {
  cudaexec::delete_handle(handle);  // must not fail: a destructor calls it
  return 0;
}

CUDAEXEC_SHIM int32_t aoti_torch_new_tensor_handle(AtenTensorHandle handle,
                                                   AtenTensorHandle* result) {
  if (cudaexec::HandleReuse::active()) {
    *result = handle;  // generated code does not look at the status here, so it must not fail
    return 0;
  }
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(tensor_from(handle));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_new_uninitialized_tensor(AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(Tensor());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim,
                                                     const int64_t* sizes, const int64_t* strides,
                                                     int64_t offset, AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  const Tensor& tensor = tensor_from(self);
  // Generated code gives the offset relative to the tensor's own.
  const auto absolute = cudaexec::checked_add(tensor.offset(), offset);
  if (!absolute) throw cudaexec::ShapeError(str("an offset of ", offset, " elements"));
  *result = new_handle(view_of(tensor, span(sizes, ndim), span(strides, ndim), *absolute));
  CUDAEXEC_SHIM_END
}

// A tensor inside a planned buffer: `offset_bytes` from the buffer's start, of any dtype.
CUDAEXEC_SHIM int32_t aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes,
                                                  int32_t dtype_code, int64_t ndim,
                                                  const int64_t* sizes, const int64_t* strides,
                                                  AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  const Tensor& pool = tensor_from(self);
  const Dtype dtype = checked_dtype(dtype_code);
  const auto itemsize = static_cast<int64_t>(cudaexec::dtype_size(dtype));
  const int64_t start = pool.offset() * static_cast<int64_t>(pool.itemsize()) + offset_bytes;
  if (start < 0 || start % itemsize != 0) {
    throw cudaexec::ShapeError(
        str("byte ", start, " of a buffer is no place for ", cudaexec::dtype_name(dtype)));
  }
  const Tensor whole(pool.storage(), 0, {}, {}, dtype);
  *result = new_handle(view_of(whole, span(sizes, ndim), span(strides, ndim), start / itemsize));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_assign_tensors(AtenTensorHandle src, AtenTensorHandle dst) {
  CUDAEXEC_SHIM_BEGIN
  tensor_from(dst) = tensor_from(src);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_assign_tensors_out(AtenTensorHandle src,
                                                    AtenTensorHandle* result) {
  CUDAEXEC_SHIM_BEGIN
  *result = new_handle(tensor_from(src));
  CUDAEXEC_SHIM_END
}
