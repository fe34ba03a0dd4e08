// Which protocol a Python type speaks, found out once per type.
#include <pybind11/pybind11.h>

#include <deque>

#include "python/bind_tensor.h"
#include "python/convert_in.h"
#include "python/numpy_array.h"

namespace cudaexec::python {
namespace {

constexpr const char* kExchangeNames[] = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"};
constexpr const char* kExchangeCapsule = "dlpack_exchange_api";
constexpr size_t kMaxTypes = 256;  // types made in a loop must not pile up here

/// An attribute of a type or module; null, with no error set, where it has none.
py::object attribute_or_null(PyObject* object, const char* name) {
  auto found = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, name));
  if (!found) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw py::error_already_set();
    PyErr_Clear();
  }
  return found;
}

/// The named class of a module that is loaded, and whether `type` is a subclass of it.
bool is_subclass_of_loaded(PyTypeObject* type, const char* module_name, const char* class_name) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), module_name);
  if (module == nullptr) return false;
  const py::object base = attribute_or_null(module, class_name);
  return base && PyType_Check(base.ptr()) != 0 &&
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base.ptr())) != 0;
}

/// The exchange table of a version we know, or null.
const dlpack::DLPackExchangeApi* exchange_api(PyTypeObject* type) {
  for (const char* name : kExchangeNames) {
    const py::object capsule = attribute_or_null(reinterpret_cast<PyObject*>(type), name);
    if (!capsule || PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule) == 0) continue;
    auto* header = static_cast<dlpack::DLPackExchangeHeader*>(
        PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
    while (header != nullptr && header->version.major != dlpack::kMajorVersion) {
      header = header->prev_api;
    }
    const auto* api = reinterpret_cast<const dlpack::DLPackExchangeApi*>(header);
    if (api != nullptr && api->managed_tensor_from_py_object_no_sync != nullptr &&
        api->managed_tensor_to_py_object_no_sync != nullptr) {
      return api;
    }
  }
  return nullptr;
}

bool has_attribute(PyTypeObject* type, const char* name) {
  return static_cast<bool>(attribute_or_null(reinterpret_cast<PyObject*>(type), name));
}

Source find_source(PyTypeObject* type, TypeInfo& info) {
  if (type == &PyBool_Type || PyType_IsSubtype(type, &PyLong_Type) != 0 || type == &PyFloat_Type) {
    return Source::kScalar;
  }
  if (is_tensor_type(type)) return Source::kTensor;
  if (type == &PyCapsule_Type) return Source::kCapsule;
  if (is_subclass_of_loaded(type, "numpy.ma", "MaskedArray")) return Source::kUnsupported;
  if (is_subclass_of_loaded(type, "numpy", "ndarray")) return Source::kNumpyArray;
  if (is_subclass_of_loaded(type, "numpy", "generic")) return Source::kNumpyScalar;
  info.api = exchange_api(type);
  if (info.api != nullptr) return Source::kExchangeApi;
  if (has_attribute(type, "__dlpack__")) return Source::kDlpack;
  if (has_attribute(type, "__cuda_array_interface__")) return Source::kCudaArray;
  if (type->tp_as_buffer != nullptr && type->tp_as_buffer->bf_getbuffer != nullptr) {
    return Source::kBuffer;
  }
  return PyType_IsSubtype(type, &PyFloat_Type) != 0 ? Source::kScalar : Source::kUnsupported;
}

TypeInfo classify(PyTypeObject* type) {
  TypeInfo info;
  info.type = type;
  info.source = find_source(type, info);
  if (info.source == Source::kNumpyArray || info.source == Source::kNumpyScalar) {
    info.family = Family::kNumpy;
  } else if (is_subclass_of_loaded(type, "torch", "Tensor")) {
    info.family = Family::kTorch;
    info.is_neg = attribute_or_null(reinterpret_cast<PyObject*>(type), "is_neg").release().ptr();
  }
  return info;
}

}  // namespace

const TypeInfo& type_info(PyObject* object) {
  static std::deque<TypeInfo> known;  // guarded by the GIL
  static TypeInfo uncached;
  PyTypeObject* type = Py_TYPE(object);
  for (const TypeInfo& info : known) {
    if (info.type == type) return info;
  }
  TypeInfo info = classify(type);
  if (known.size() < kMaxTypes) {
    Py_INCREF(type);  // for good: the address must not be used again
    return known.emplace_back(info);
  }
  Py_XDECREF(uncached.is_neg);
  uncached = info;
  return uncached;
}

}  // namespace cudaexec::python
