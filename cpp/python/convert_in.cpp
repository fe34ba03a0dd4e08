#include "python/convert_in.h"

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/cuda_array.h"
#include "python/device_copy.h"
#include "python/dlpack_in.h"
#include "python/gil.h"
#include "python/numpy_array.h"
#include "python/scalars.h"
#include "runtime/spec_text.h"
#include "tensor/dlpack.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

std::optional<Dtype> dtype_from_format(const char* format, Py_ssize_t itemsize) noexcept {
  std::string_view text = format != nullptr ? format : "B";
  if (!text.empty() && std::strchr("@=<", text.front()) != nullptr) text.remove_prefix(1);
  if (text.size() != 1) return std::nullopt;
  switch (text.front()) {
    case '?':
      return Dtype::kBool;
    case 'B':
      return Dtype::kUint8;
    case 'b':
      return Dtype::kInt8;
    case 'e':
      return Dtype::kFloat16;
    case 'f':
      return Dtype::kFloat32;
    case 'd':
      return Dtype::kFloat64;
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      if (itemsize == 2) return Dtype::kInt16;
      if (itemsize == 4) return Dtype::kInt32;
      if (itemsize == 8) return Dtype::kInt64;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Tensor from_buffer(PyObject* object, Borrowed& borrowed) {
  Py_buffer& buffer = borrowed.add_buffer();
  if (PyObject_GetBuffer(object, &buffer, PyBUF_RECORDS_RO) != 0) {
    borrowed.drop_last_buffer();
    py::error_already_set error;
    throw_from_python_error(error, ErrorKind::kInput,
                            str(with_article(type_name(object)), " gave no buffer"));
  }
  const auto dtype = dtype_from_format(buffer.format, buffer.itemsize);
  if (!dtype || static_cast<Py_ssize_t>(dtype_size(*dtype)) != buffer.itemsize) {
    throw DtypeError(str(with_article(type_name(object)), " with buffer format '",
                         buffer.format != nullptr ? buffer.format : "B", "' (", buffer.itemsize,
                         " bytes an item) is not supported; expected one of ? b B h i l q e f d in "
                         "this machine's byte order"));
  }
  Dims sizes(static_cast<size_t>(buffer.ndim));
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = buffer.shape[i];
  Dims strides = contiguous_strides(sizes);
  if (buffer.strides != nullptr) {  // some objects leave them out although they were asked for
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] > 1 && buffer.strides[i] % buffer.itemsize != 0) {
        throw ShapeError(str(with_article(type_name(object)), " whose stride ", buffer.strides[i],
                             " (bytes) is no multiple of its item size ", buffer.itemsize,
                             "; pass a packed copy"));
      }
      strides[i] = buffer.strides[i] / buffer.itemsize;
    }
  }
  return borrow_strided(buffer.buf, std::move(sizes), std::move(strides), *dtype, Device{},
                        nullptr);
}

Tensor from_numpy_scalar(PyObject* object, Borrowed& borrowed) {
  const auto array =
      py::reinterpret_steal<py::object>(numpy_api().from_any(object, nullptr, 0, 0, 0, nullptr));
  if (!array) throw py::error_already_set();
  borrowed.keep(array.ptr());
  py::object copy;
  Tensor tensor = tensor_from_array(array.ptr(), copy);
  if (copy) borrowed.keep(copy.ptr());
  return tensor;
}

[[noreturn]] void refuse_object(PyObject* object) {
  throw InputError(str(with_article(type_name(object)),
                       " cannot be used as a tensor; expected a numpy array, a torch tensor, a "
                       "cudaexec.Tensor, or an object with __dlpack__, __cuda_array_interface__ or "
                       "the buffer protocol (for "
                       "lists of numbers: numpy.array(values, dtype=...))"));
}

/// A packed copy on the GPU, made when the inputs so far are ready.
Tensor copy_in_order(const Tensor& tensor, Borrowed& borrowed) {
  const int device = tensor.device().index;
  const StreamRef stream = borrowed.gpu.handover_stream(device);
  borrowed.gpu.follow(device, stream);
  Tensor copy = without_gil([&] { return copy_on_device(tensor, stream); });
  borrowed.gpu.add_copy(copy.storage());
  return copy;
}

/// The runtime takes no negative strides: those become a packed copy.
Tensor without_negative_strides(Tensor tensor, Borrowed& borrowed) {
  bool negative = false;
  for (size_t i = 0; i < tensor.strides().size(); ++i) negative |= tensor.stride(i) < 0;
  if (!negative) [[likely]]
    return tensor;
  if (tensor.device().is_cpu()) {
    return without_gil([&] { return contiguous_copy(tensor, cpu_allocator(), StreamRef{}); });
  }
  return borrowed.gpu.refused() ? tensor : copy_in_order(tensor, borrowed);
}

Tensor dispatch(PyObject* object, const TypeInfo& info, Borrowed& borrowed) {
  switch (info.source) {
    case Source::kNumpyArray: {
      py::object copy;
      Tensor tensor = tensor_from_array(object, copy);
      if (copy) borrowed.keep(copy.ptr());
      return tensor;
    }
    case Source::kExchangeApi:
      return tensor_from_exchange_api(object, info, borrowed);
    case Source::kTensor: {
      const Tensor& tensor = tensor_of(object);
      if (!tensor.device().is_cpu()) [[unlikely]] {
        borrowed.gpu.add(*tensor.storage());
      }
      return tensor;
    }
    case Source::kNumpyScalar:
      return from_numpy_scalar(object, borrowed);
    case Source::kDlpack:
      return tensor_from_dlpack_method(object, borrowed);
    case Source::kCapsule:
      return tensor_from_capsule(object, borrowed);
    case Source::kBuffer:
      return from_buffer(object, borrowed);
    case Source::kCudaArray:
      return tensor_from_cuda_array(object, borrowed);
    case Source::kScalar:
    case Source::kUnsupported:
      break;
  }
  refuse_object(object);
}

}  // namespace

void Borrowed::release() noexcept {
  gpu.order_after();  // while everything is still there
  for (dlpack::DLManagedTensor* tensor : legacy_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (dlpack::DLManagedTensorVersioned* tensor : versioned_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (const auto& buffer : buffers_) PyBuffer_Release(buffer.get());
  for (PyObject* object : objects_) Py_DECREF(object);
  gpu.clear();
  legacy_.clear();
  versioned_.clear();
  buffers_.clear();
  objects_.clear();
  family = Family::kCudaexec;
  torch_api = nullptr;
}

Py_buffer& Borrowed::add_buffer() { return *buffers_.emplace_back(std::make_unique<Py_buffer>()); }

Tensor tensor_from_object(PyObject* object, Borrowed& borrowed) {
  const TypeInfo& info = type_info(object);
  borrowed.keep(object);
  borrowed.note(info);
  return without_negative_strides(dispatch(object, info, borrowed), borrowed);
}

Value value_from_object(PyObject* object, const MethodSpec& method, size_t index,
                        Borrowed& borrowed) {
  const InputSpec& spec = method.inputs[index];
  try {
    if (spec.kind == InputSpec::Kind::kConstant) return scalar_from_object(object);
    const TypeInfo& info = type_info(object);
    if (info.source == Source::kScalar) return tensor_from_scalar(object, spec);
    borrowed.keep(object);
    borrowed.note(info);
    return without_negative_strides(dispatch(object, info, borrowed), borrowed);
  } catch (const Error& error) {
    const std::string expected = spec.kind == InputSpec::Kind::kConstant
                                     ? "the compiled-in value " + scalar_text(spec.value)
                                     : tensor_text(spec.tensor, method);
    throw Error(error.kind(), str("method '", method.name, "': input '", spec.name, "': expected ",
                                  expected, ": ", error.what()));
  }
}

}  // namespace cudaexec::python
