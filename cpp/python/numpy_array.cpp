#include "python/numpy_array.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "python/keep_storage.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

using Api = py::detail::npy_api;
using Array = py::detail::PyArray_Proxy;
using Descr = py::detail::PyArrayDescr_Proxy;

constexpr int kNumpyHalf = 23;
constexpr int kFirstUserType = 256;

std::optional<Dtype> from_type_num(int num) noexcept {
  switch (num) {
    case Api::NPY_BOOL_:
      return Dtype::kBool;
    case Api::NPY_BYTE_:
      return Dtype::kInt8;
    case Api::NPY_UBYTE_:
      return Dtype::kUint8;
    case Api::NPY_SHORT_:
      return Dtype::kInt16;
    case Api::NPY_INT_:
      return Dtype::kInt32;
    case Api::NPY_LONG_:
    case Api::NPY_LONGLONG_:
      return Dtype::kInt64;
    case Api::NPY_FLOAT_:
      return Dtype::kFloat32;
    case Api::NPY_DOUBLE_:
      return Dtype::kFloat64;
    case kNumpyHalf:
      return Dtype::kFloat16;
    default:
      return std::nullopt;
  }
}

int to_type_num(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::kBool:
      return Api::NPY_BOOL_;
    case Dtype::kInt8:
      return Api::NPY_BYTE_;
    case Dtype::kUint8:
      return Api::NPY_UBYTE_;
    case Dtype::kInt16:
      return Api::NPY_SHORT_;
    case Dtype::kInt32:
      return Api::NPY_INT_;
    case Dtype::kInt64:
      return Api::NPY_LONG_;
    case Dtype::kFloat32:
      return Api::NPY_FLOAT_;
    case Dtype::kFloat64:
      return Api::NPY_DOUBLE_;
    case Dtype::kFloat16:
      return kNumpyHalf;
    case Dtype::kBfloat16:
      break;
  }
  return -1;
}

bool is_bfloat16(const Descr& descr) noexcept {
  if (descr.type_num < kFirstUserType) return false;
  const char* name = reinterpret_cast<PyTypeObject*>(descr.typeobj)->tp_name;
  const char* dot = std::strrchr(name, '.');
  return std::strcmp(dot != nullptr ? dot + 1 : name, "bfloat16") == 0;
}

/// ml_dtypes' bfloat16 as a numpy dtype, kept for good; null where ml_dtypes is not installed.
PyObject* bfloat16_descr() {
  static PyObject* descr = nullptr;
  if (descr != nullptr) return descr;
  try {
    const py::object scalar = py::module_::import("ml_dtypes").attr("bfloat16");
    descr = py::module_::import("numpy").attr("dtype")(scalar).release().ptr();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError)) throw;
  }
  return descr;
}

[[noreturn]] void refuse_dtype(PyObject* descr) {
  const std::string name = py::str(py::handle(descr));
  if (reinterpret_cast<Descr*>(descr)->byteorder == '>') {
    throw DtypeError(str("a numpy array of dtype ", name,
                         " is not in this machine's byte order; convert it with "
                         "a.astype(a.dtype.newbyteorder('='))"));
  }
  throw DtypeError(
      str("a numpy array of dtype ", name,
          " is not supported; expected bool, uint8, int8, int16, int32, int64, float16, "
          "float32, float64 or ml_dtypes' bfloat16"));
}

/// The capsule with numpy's table, under the name that the module has in numpy 2 or 1.
py::object numpy_table() {
  try {
    return py::module_::import("numpy._core._multiarray_umath").attr("_ARRAY_API");
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError) && !error.matches(PyExc_AttributeError)) throw;
  }
  return py::module_::import("numpy.core._multiarray_umath").attr("_ARRAY_API");
}

}  // namespace

const NumpyApi& numpy_api() {
  static NumpyApi api;  // complete once array_type, the last entry, is there; guarded by the GIL
  if (api.array_type != nullptr) [[likely]]
    return api;
  const py::object capsule = numpy_table();
  auto* const table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (table == nullptr) throw py::error_already_set();
  const auto entry = [&]<typename Function>(Function& place, size_t index) {
    place = reinterpret_cast<Function>(table[index]);
  };
  // Places in the table, as numpy/__multiarray_api.h has them: they never change.
  entry(api.descr_from_type, 45);
  entry(api.from_any, 69);
  entry(api.new_copy, 85);
  entry(api.new_from_descr, 94);
  entry(api.set_base_object, 282);
  entry(api.array_type, 2);
  return api;
}

bool numpy_is_loaded() {
  PyObject* modules = PyImport_GetModuleDict();
  return modules != nullptr && PyDict_GetItemString(modules, "numpy") != nullptr;
}

std::optional<Dtype> dtype_from_numpy(PyObject* object) noexcept {
  const auto& descr = *reinterpret_cast<const Descr*>(object);
  if (descr.byteorder == '>') return std::nullopt;
  if (is_bfloat16(descr)) return Dtype::kBfloat16;
  return from_type_num(descr.type_num);
}

Tensor tensor_from_array(PyObject* object, py::object& copy) {
  const auto* array = reinterpret_cast<const Array*>(object);
  const auto dtype = dtype_from_numpy(array->descr);
  if (!dtype) refuse_dtype(array->descr);
  const auto itemsize = static_cast<int64_t>(dtype_size(*dtype));
  const auto rank = static_cast<size_t>(array->nd);
  Dims sizes(rank);
  Dims strides(rank);
  for (size_t i = 0; i < rank; ++i) {
    sizes[i] = array->dimensions[i];
    if (sizes[i] > 1 && array->strides[i] % itemsize != 0) {
      copy = py::reinterpret_steal<py::object>(numpy_api().new_copy(object, 0));
      if (!copy) throw py::error_already_set();
      return tensor_from_array(copy.ptr(), copy);
    }
    strides[i] = array->strides[i] / itemsize;
  }
  return borrow_strided(array->data, std::move(sizes), std::move(strides), *dtype, Device{},
                        nullptr);
}

bool numpy_has_dtype(Dtype dtype) {
  return dtype != Dtype::kBfloat16 || bfloat16_descr() != nullptr;
}

py::object array_from_tensor(const Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    throw DeviceError(str("a tensor on ", to_string(tensor.device()),
                          " has no numpy view; copy it with .to_host() first"));
  }
  const NumpyApi& api = numpy_api();
  PyObject* descr = nullptr;
  if (tensor.dtype() == Dtype::kBfloat16) {
    descr = bfloat16_descr();
    if (descr == nullptr) {
      throw NotSupported(
          "numpy has no bfloat16: install ml_dtypes (pip install ml_dtypes), or take the values "
          "through DLPack, as torch.from_dlpack(tensor) does");
    }
    Py_INCREF(descr);
  } else {
    descr = api.descr_from_type(to_type_num(tensor.dtype()));
  }
  const auto itemsize = static_cast<int64_t>(tensor.itemsize());
  Dims byte_strides = tensor.strides();
  for (int64_t& stride : byte_strides) stride *= itemsize;
  // numpy allocates where there is no address, which is right for tensors without elements.
  auto array = py::reinterpret_steal<py::object>(api.new_from_descr(
      api.array_type, descr, static_cast<int>(tensor.dim()), tensor.sizes().data(),
      byte_strides.data(), tensor.data(), Api::NPY_ARRAY_WRITEABLE_, nullptr));
  if (!array) throw py::error_already_set();
  if (tensor.data() != nullptr &&
      api.set_base_object(array.ptr(), keep_storage(tensor.storage()).release().ptr()) != 0) {
    throw py::error_already_set();
  }
  return array;
}

}  // namespace cudaexec::python
