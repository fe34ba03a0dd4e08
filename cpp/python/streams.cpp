#include "python/streams.h"

#include <memory>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "device/cuda/cuda_device.h"
#include "python/bind_errors.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;

constexpr const char* kExpected =
    "expected None, an int handle, a torch.cuda.Stream, a cupy stream or an object with "
    "__cuda_stream__";

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

py::object attribute_or_null(PyObject* object, const char* name) {
  auto found = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, name));
  if (!found) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw py::error_already_set();
    PyErr_Clear();
  }
  return found;
}

/// The value of an int that is a handle.
uint64_t handle_from_int(PyObject* number, const std::string& place) {
  const unsigned long long handle = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw InputError(
        str(place, ": ", std::string(py::repr(number)), " is no handle of a stream; ", kExpected));
  }
  return handle;
}

/// The handle that `object.__cuda_stream__()` gives: (version, handle).
uint64_t handle_from_protocol(PyObject* object, const py::object& method,
                              const std::string& place) {
  // A method by the protocol; early versions of it had a property.
  const py::object pair = PyCallable_Check(method.ptr()) != 0 ? method() : method;
  if (PyTuple_Check(pair.ptr()) == 0 || PyTuple_GET_SIZE(pair.ptr()) != 2 ||
      PyLong_Check(PyTuple_GET_ITEM(pair.ptr(), 0)) == 0 ||
      PyLong_Check(PyTuple_GET_ITEM(pair.ptr(), 1)) == 0) {
    throw InputError(str(place, ": ", type_name(object), ".__cuda_stream__() gave ",
                         std::string(py::repr(pair)), "; expected (version, handle)"));
  }
  const uint64_t version = handle_from_int(PyTuple_GET_ITEM(pair.ptr(), 0), place);
  if (version != 0) {
    throw NotSupported(str(place, ": ", type_name(object), ".__cuda_stream__() is of version ",
                           version, "; this build knows version 0: pass the handle as an int"));
  }
  return handle_from_int(PyTuple_GET_ITEM(pair.ptr(), 1), place);
}

/// torch tells a stream's device, also for default streams, whose handle is the same on all.
void check_device_attribute(PyObject* object, Device device, const std::string& place) {
  const py::object index = attribute_or_null(object, "device_index");
  if (!index || PyLong_Check(index.ptr()) == 0) return;
  const long found = PyLong_AsLong(index.ptr());
  if (found == device.index) return;
  PyErr_Clear();
  throw DeviceError(str(place, ": expected a stream of ", to_string(device),
                        ", found one of cuda:", found, "; use a stream of the program's device"));
}

uint64_t handle_from_object(PyObject* object, Device device, const std::string& place) {
  if (PyBool_Check(object) == 0 && PyLong_Check(object) != 0) return handle_from_int(object, place);
  try {
    if (const py::object method = attribute_or_null(object, "__cuda_stream__")) {
      check_device_attribute(object, device, place);
      return handle_from_protocol(object, method, place);
    }
    for (const char* name : {"cuda_stream", "ptr"}) {
      const py::object handle = attribute_or_null(object, name);
      if (!handle || PyLong_Check(handle.ptr()) == 0) continue;
      check_device_attribute(object, device, place);
      return handle_from_int(handle.ptr(), place);
    }
  } catch (py::error_already_set& error) {
    throw_from_python_error(error, ErrorKind::kInput,
                            str(place, ": ", with_article(type_name(object)), " told no stream"));
  }
  throw InputError(str(place, ": ", with_article(type_name(object)), " is no stream; ", kExpected));
}

/// Orders the memory's own stream after a user's when the user is done with it.
class StreamUse {
 public:
  StreamUse(StoragePtr storage, StreamRef user) noexcept
      : storage_(std::move(storage)), user_(user) {}
  ~StreamUse() { order_release(storage_, user_); }
  StreamUse(const StreamUse&) = delete;
  StreamUse& operator=(const StreamUse&) = delete;

 private:
  StoragePtr storage_;
  StreamRef user_;
};

/// Memory and the Python object of its stream, given back in this order.
class StreamOwner {
 public:
  StreamOwner(StoragePtr storage, PyObject* object) noexcept
      : storage_(std::move(storage)), object_(object) {
    Py_INCREF(object_);
  }
  ~StreamOwner() {
    storage_ = StoragePtr();
    drop_reference(object_);
  }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;

 private:
  StoragePtr storage_;
  PyObject* object_;
};

}  // namespace

StreamRef stream_from_number(uint64_t number) noexcept {
  if (number == 1) return StreamRef();
  return StreamRef(reinterpret_cast<void*>(static_cast<uintptr_t>(number)));
}

uint64_t number_from_stream(StreamRef stream) noexcept {
  return stream.get() == nullptr ? 1 : reinterpret_cast<uintptr_t>(stream.get());
}

std::optional<StreamRef> stream_from_object(PyObject* object, Device device,
                                            const std::string& place) {
  if (object == nullptr || object == Py_None) return std::nullopt;
  if (device.is_cpu()) {
    throw InputError(str(place,
                         ": the program runs on the cpu, where there are no streams: "
                         "expected None, found ",
                         with_article(type_name(object)), "; leave the stream out"));
  }
  const StreamRef stream = stream_from_number(handle_from_object(object, device, place));
  const CudaDevice* owner = nullptr;
  try {
    owner = cuda_device_of_stream(stream);
  } catch (const InternalError& error) {  // the driver does not know it
    throw InputError(
        str(place, ": ", std::string(py::repr(object)), " is no live stream: ", error.what()));
  }
  if (owner != nullptr && owner->device() != device) {
    throw DeviceError(str(place, ": expected a stream of ", to_string(device), ", found one of ",
                          to_string(owner->device()), "; use a stream of the program's device"));
  }
  return stream;
}

Tensor used_on(const Tensor& tensor, StreamRef stream) {
  const StoragePtr& storage = tensor.storage();
  if (storage->device().is_cpu() || storage->stream() == stream || storage->data() == nullptr) {
    return tensor;
  }
  StoragePtr shared = Storage::borrow(storage->data(), storage->nbytes(), storage->device(),
                                      std::make_shared<StreamUse>(storage, stream), stream);
  return {std::move(shared), tensor.offset(), tensor.sizes(), tensor.strides(), tensor.dtype()};
}

Tensor kept_with_stream(const Tensor& tensor, PyObject* object) {
  const StoragePtr& storage = tensor.storage();
  if (storage->device().is_cpu() || PyLong_Check(object) != 0) return tensor;
  StoragePtr shared =
      Storage::borrow(storage->data(), storage->nbytes(), storage->device(),
                      std::make_shared<StreamOwner>(storage, object), storage->stream());
  return {std::move(shared), tensor.offset(), tensor.sizes(), tensor.strides(), tensor.dtype()};
}

void order_release(const StoragePtr& storage, StreamRef user) noexcept {
  // The thread's default stream means another one on another thread; the legacy default stream
  // follows them all.
  if (cu_stream(user) == cuda::per_thread_stream()) user = StreamRef();
  try {
    CudaDevice* device = cuda_device_if_used(storage->device().index);
    if (device != nullptr && cuda::driver_if_initialised() != nullptr) {
      device->order(storage->stream(), user);
    }
  } catch (const std::exception& error) {
    report_cleanup_failure("ordering the release of a tensor after its last use", error.what());
  }
}

void make_ready_on(const Tensor& tensor, StreamRef stream) {
  if (tensor.device().is_cpu() || tensor.storage()->data() == nullptr) return;
  cuda_device(tensor.device().index).order(stream, tensor.storage()->stream());
}

}  // namespace cudaexec::python
