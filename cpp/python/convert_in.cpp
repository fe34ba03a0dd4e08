#include "python/convert_in.h"

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/str.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/gil.h"
#include "python/numpy_array.h"
#include "python/scalars.h"
#include "runtime/spec_text.h"
#include "tensor/dlpack.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;

constexpr const char* kLegacy = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

Tensor from_versioned(DLManagedTensorVersioned* managed, Borrowed& borrowed) {
  borrowed.keep(managed);
  if (managed->version.major != dlpack::kMajorVersion) {
    throw NotSupported(str("a DLPack tensor of version ", managed->version.major, ".",
                           managed->version.minor, "; this build reads version ",
                           dlpack::kMajorVersion, ": ask the producer for max_version=(1, 3)"));
  }
  return tensor_from_dlpack(managed->dl_tensor, nullptr);
}

/// Takes the tensor out of a capsule, which others then find used.
Tensor from_capsule(PyObject* capsule, Borrowed& borrowed) {
  const char* name = PyCapsule_GetName(capsule);
  const std::string_view found = name != nullptr ? name : "";
  if (found == kVersioned) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name));
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    return from_versioned(managed, borrowed);
  }
  if (found == kLegacy) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name));
    PyCapsule_SetName(capsule, "used_dltensor");
    borrowed.keep(managed);
    return tensor_from_dlpack(managed->dl_tensor, nullptr);
  }
  if (found.starts_with("used_dltensor")) {
    throw InputError(
        "the DLPack capsule was consumed before; a capsule can be used once: call __dlpack__() "
        "again "
        "or pass the tensor itself");
  }
  throw InputError(str("a capsule named '", found, "' is no DLPack capsule; expected '", kVersioned,
                       "' or '", kLegacy, "'"));
}

/// obj.__dlpack__(max_version=(1, 3)), or obj.__dlpack__() for producers older than that argument.
py::object call_dlpack(PyObject* object) {
  const py::object method = py::handle(object).attr("__dlpack__");
  try {
    return method(py::arg("max_version") =
                      py::make_tuple(dlpack::kMajorVersion, dlpack::kMinorVersion));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
}

Tensor from_dlpack_protocol(PyObject* object, Borrowed& borrowed) {
  py::object capsule;
  try {
    capsule = call_dlpack(object);
  } catch (py::error_already_set& error) {
    throw_from_python_error(error, ErrorKind::kInput,
                            str(type_name(object), ".__dlpack__() failed"));
  }
  if (PyCapsule_CheckExact(capsule.ptr()) == 0) {
    throw InputError(str(type_name(object), ".__dlpack__() returned a ", type_name(capsule.ptr()),
                         "; expected a capsule"));
  }
  return from_capsule(capsule.ptr(), borrowed);
}

void refuse_pending_sign(PyObject* object, PyObject* is_neg) {
  PyObject* answer = PyObject_CallOneArg(is_neg, object);
  if (answer == nullptr) {
    py::error_already_set error;
    throw_from_python_error(error, ErrorKind::kInput, "torch cannot tell the tensor's sign bit");
  }
  const bool pending = answer == Py_True;
  Py_DECREF(answer);
  if (pending) {
    throw InputError(
        "the torch tensor is a negated view (its memory holds the opposite signs); pass "
        "tensor.resolve_neg()");
  }
}

Tensor from_exchange_api(PyObject* object, const TypeInfo& info, Borrowed& borrowed) {
  const auto* api = info.api;
  if (info.is_neg != nullptr) refuse_pending_sign(object, info.is_neg);
  DLManagedTensorVersioned* managed = nullptr;
  dlpack::DLTensor view{};
  const bool borrow = api->dltensor_from_py_object_no_sync != nullptr;
  const int status = borrow ? api->dltensor_from_py_object_no_sync(object, &view)
                            : api->managed_tensor_from_py_object_no_sync(object, &managed);
  if (status != 0) {
    py::error_already_set error;
    throw_from_python_error(
        error, ErrorKind::kInput,
        str("a ", type_name(object),
            " that DLPack cannot describe (sparse, quantised, meta or wrapped?)"));
  }
  return borrow ? tensor_from_dlpack(view, nullptr) : from_versioned(managed, borrowed);
}

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
                            str("a ", type_name(object), " gave no buffer"));
  }
  const auto dtype = dtype_from_format(buffer.format, buffer.itemsize);
  if (!dtype || static_cast<Py_ssize_t>(dtype_size(*dtype)) != buffer.itemsize) {
    throw DtypeError(str("a ", type_name(object), " with buffer format '",
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
        throw ShapeError(str("a ", type_name(object), " whose stride ", buffer.strides[i],
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
  const auto array = py::reinterpret_steal<py::object>(
      py::detail::npy_api::get().PyArray_FromAny_(object, nullptr, 0, 0, 0, nullptr));
  if (!array) throw py::error_already_set();
  borrowed.keep(array.ptr());
  py::object copy;
  Tensor tensor = tensor_from_array(array.ptr(), copy);
  if (copy) borrowed.keep(copy.ptr());
  return tensor;
}

[[noreturn]] void refuse_object(PyObject* object) {
  throw InputError(str("a ", type_name(object),
                       " cannot be used as a tensor; expected a numpy array, a torch tensor, a "
                       "cudaexec.Tensor, or an object with __dlpack__ or the buffer protocol (for "
                       "lists of numbers: numpy.array(values, dtype=...))"));
}

/// The runtime takes no negative strides: those become a packed copy.
Tensor without_negative_strides(Tensor tensor) {
  bool negative = false;
  for (size_t i = 0; i < tensor.strides().size(); ++i) negative |= tensor.stride(i) < 0;
  if (!negative) [[likely]]
    return tensor;
  return without_gil([&] { return contiguous_copy(tensor, cpu_allocator(), StreamRef{}); });
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
      return from_exchange_api(object, info, borrowed);
    case Source::kTensor:
      return tensor_of(object);
    case Source::kNumpyScalar:
      return from_numpy_scalar(object, borrowed);
    case Source::kDlpack:
      return from_dlpack_protocol(object, borrowed);
    case Source::kCapsule:
      return from_capsule(object, borrowed);
    case Source::kBuffer:
      return from_buffer(object, borrowed);
    case Source::kCudaArray:
      throw DeviceError(str("a ", type_name(object),
                            " holds CUDA memory, and this build has no CUDA; copy it to the host "
                            "first"));
    case Source::kScalar:
    case Source::kUnsupported:
      break;
  }
  refuse_object(object);
}

}  // namespace

Borrowed::~Borrowed() {
  for (DLManagedTensor* tensor : legacy_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (DLManagedTensorVersioned* tensor : versioned_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (const auto& buffer : buffers_) PyBuffer_Release(buffer.get());
  for (PyObject* object : objects_) Py_DECREF(object);
}

Py_buffer& Borrowed::add_buffer() { return *buffers_.emplace_back(std::make_unique<Py_buffer>()); }

Tensor tensor_from_object(PyObject* object, Borrowed& borrowed) {
  const TypeInfo& info = type_info(object);
  borrowed.keep(object);
  borrowed.note(info);
  return without_negative_strides(dispatch(object, info, borrowed));
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
    return without_negative_strides(dispatch(object, info, borrowed));
  } catch (const Error& error) {
    const std::string expected = spec.kind == InputSpec::Kind::kConstant
                                     ? "the compiled-in value " + scalar_text(spec.value)
                                     : tensor_text(spec.tensor, method);
    throw Error(error.kind(), str("method '", method.name, "': input '", spec.name, "': expected ",
                                  expected, ": ", error.what()));
  }
}

}  // namespace cudaexec::python
