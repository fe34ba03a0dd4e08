#include "python/dlpack_in.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "device/cuda/cuda_device.h"
#include "python/bind_errors.h"
#include "python/gil.h"
#include "python/streams.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

using dlpack::DLDevice;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;

constexpr const char* kLegacy = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

bool is_gpu(int32_t device_type) noexcept {
  return device_type == dlpack::kDLCuda || device_type == dlpack::kDLCudaManaged;
}

/// What a capsule or a producer handed out.
struct Taken {
  dlpack::DLTensor tensor{};
  DLManagedTensor* legacy = nullptr;
  DLManagedTensorVersioned* versioned = nullptr;

  /// Gives the struct to what frees it: after the call, or once the GPU is done with it.
  void give_to(Borrowed& borrowed, bool hold) const {
    if (legacy != nullptr) hold ? borrowed.gpu.hold(legacy) : borrowed.keep(legacy);
    if (versioned != nullptr) hold ? borrowed.gpu.hold(versioned) : borrowed.keep(versioned);
  }
};

void check_version(const DLManagedTensorVersioned& managed) {
  if (managed.version.major == dlpack::kMajorVersion) return;
  throw NotSupported(str("a DLPack tensor of version ", managed.version.major, ".",
                         managed.version.minor, "; this build reads version ",
                         dlpack::kMajorVersion, ": ask the producer for max_version=(1, 3)"));
}

Taken take(PyObject* capsule) {
  const char* name = PyCapsule_GetName(capsule);
  const std::string_view found = name != nullptr ? name : "";
  Taken taken;
  if (found == kVersioned) {
    taken.versioned = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name));
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    if (taken.versioned->version.major == dlpack::kMajorVersion) {
      taken.tensor = taken.versioned->dl_tensor;
    }
    return taken;
  }
  if (found == kLegacy) {
    taken.legacy = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name));
    PyCapsule_SetName(capsule, "used_dltensor");
    taken.tensor = taken.legacy->dl_tensor;
    return taken;
  }
  if (found.starts_with("used_dltensor")) {
    throw InputError(
        "the DLPack capsule was consumed before; a capsule can be used once: call __dlpack__() "
        "again or pass the tensor itself");
  }
  throw InputError(str("a capsule named '", found, "' is no DLPack capsule; expected '", kVersioned,
                       "' or '", kLegacy, "'"));
}

/// Managed memory serves the device that the program runs on: the host, once `ready` is passed, or
/// its GPU.
void place_managed(dlpack::DLTensor& tensor, StreamRef ready, const GpuInputs& gpu) {
  if (gpu.refused()) {
    const int index = tensor.device.device_id;
    without_gil([&] { cuda_device(index).synchronize(ready); });
    tensor.device = {dlpack::kDLCpu, 0};
  } else {
    const auto program = gpu.device();
    tensor.device = {dlpack::kDLCuda, program ? program->index : tensor.device.device_id};
  }
}

/// `ready`: the stream that the producer ordered GPU memory on.
Tensor adopt(Taken taken, StreamRef ready, Borrowed& borrowed) {
  const DLDevice device = taken.tensor.device;
  const bool gpu = is_gpu(device.device_type) && taken.tensor.data != nullptr;
  taken.give_to(borrowed, gpu);
  if (taken.versioned != nullptr) check_version(*taken.versioned);
  if (device.device_type == dlpack::kDLCudaManaged) {
    place_managed(taken.tensor, ready, borrowed.gpu);
  }
  if (gpu && is_gpu(taken.tensor.device.device_type)) {
    borrowed.gpu.add_ready(device.device_id, ready);
  }
  return tensor_from_dlpack(taken.tensor, nullptr);
}

/// Where the producer says that its memory is; nothing if it does not say.
std::optional<DLDevice> device_of(PyObject* object) {
  auto method =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, "__dlpack_device__"));
  if (!method) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    return std::nullopt;
  }
  const py::object pair = method();
  if (PyTuple_Check(pair.ptr()) == 0 || PyTuple_GET_SIZE(pair.ptr()) != 2) {
    throw InputError(str(type_name(object), ".__dlpack_device__() returned ",
                         std::string(py::repr(pair)), "; expected (device type, device id)"));
  }
  const long type = PyLong_AsLong(PyTuple_GET_ITEM(pair.ptr(), 0));
  const long index = PyLong_AsLong(PyTuple_GET_ITEM(pair.ptr(), 1));
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return DLDevice{static_cast<int32_t>(type), static_cast<int32_t>(index)};
}

/// obj.__dlpack__(max_version=(1, 3)), or without it for producers older than that argument; with
/// `stream` for memory on a GPU.
py::object call_dlpack(PyObject* object, std::optional<StreamRef> stream) {
  const py::object method = py::handle(object).attr("__dlpack__");
  py::dict options;
  if (stream) options["stream"] = number_from_stream(*stream);
  try {
    py::dict newer(**options);
    newer["max_version"] = py::make_tuple(dlpack::kMajorVersion, dlpack::kMinorVersion);
    return method(**newer);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**options);
}

/// Asks torch whether a negation of the tensor is pending, which DLPack would lose.
void refuse_pending_sign(PyObject* object, PyObject* is_neg) {
  PyObject* answer = PyObject_CallOneArg(is_neg, object);
  if (answer == nullptr) {
    throw_from_pending_error(ErrorKind::kInput, "torch cannot tell the tensor's sign bit");
  }
  const bool pending = answer == Py_True;
  Py_DECREF(answer);
  if (pending) {
    throw InputError(
        "the torch tensor is a negated view (its memory holds the opposite signs); pass "
        "tensor.resolve_neg()");
  }
}

}  // namespace

void refuse_gpu_memory(const std::string& what, int device) {
  throw DeviceError(str("the program runs on the cpu, found ", what, " on cuda:", device,
                        "; copy it to the host first, or load the program for the GPU"));
}

Tensor tensor_from_capsule(PyObject* capsule, Borrowed& borrowed) {
  return adopt(take(capsule), StreamRef(), borrowed);
}

Tensor tensor_from_dlpack_method(PyObject* object, Borrowed& borrowed) {
  py::object capsule;
  std::optional<StreamRef> stream;
  try {
    const auto device = device_of(object);
    if (device && is_gpu(device->device_type)) {
      if (borrowed.gpu.refused() && device->device_type == dlpack::kDLCuda) {
        refuse_gpu_memory(with_article(type_name(object)), device->device_id);
      }
      stream = borrowed.gpu.handover_stream(device->device_id);
    }
    capsule = call_dlpack(object, stream);
  } catch (py::error_already_set& error) {
    throw_from_python_error(error, ErrorKind::kInput,
                            str(type_name(object), ".__dlpack__() failed"));
  }
  if (PyCapsule_CheckExact(capsule.ptr()) == 0) {
    throw InputError(str(type_name(object), ".__dlpack__() returned ",
                         with_article(type_name(capsule.ptr())), "; expected a capsule"));
  }
  return adopt(take(capsule.ptr()), stream.value_or(StreamRef()), borrowed);
}

Tensor tensor_from_exchange_api(PyObject* object, const TypeInfo& info, Borrowed& borrowed) {
  const auto* api = info.api;
  if (info.is_neg != nullptr) refuse_pending_sign(object, info.is_neg);
  dlpack::DLTensor view{};
  DLManagedTensorVersioned* managed = nullptr;
  const bool borrow = api->dltensor_from_py_object_no_sync != nullptr;
  const int status = borrow ? api->dltensor_from_py_object_no_sync(object, &view)
                            : api->managed_tensor_from_py_object_no_sync(object, &managed);
  if (status != 0) {
    throw_from_pending_error(
        ErrorKind::kInput,
        str(with_article(type_name(object)),
            " that DLPack cannot describe (sparse, quantised, meta or wrapped?)"));
  }
  if (!borrow) {
    borrowed.keep(managed);
    check_version(*managed);
    view = managed->dl_tensor;
  }
  if (view.device.device_type != dlpack::kDLCpu) [[unlikely]] {
    if (is_gpu(view.device.device_type)) borrowed.gpu.add_current(api, view.device.device_id);
    if (view.device.device_type == dlpack::kDLCudaManaged && !borrowed.gpu.refused()) {
      place_managed(view, StreamRef(), borrowed.gpu);
    }
  }
  return tensor_from_dlpack(view, nullptr);
}

}  // namespace cudaexec::python
