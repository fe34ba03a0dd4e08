#include "python/scalars.h"

#include <pybind11/pybind11.h>

#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "python/convert_in.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

int64_t int64_from(PyObject* object) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) {
    throw InputError(
        str("the integer ", std::string(py::str(py::handle(object))), " does not fit 64 bits"));
  }
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

std::pair<int64_t, int64_t> integer_range(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::kUint8:
      return {0, 255};
    case Dtype::kInt8:
      return {-128, 127};
    case Dtype::kInt16:
      return {-32768, 32767};
    case Dtype::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

/// A tensor without dimensions that holds `value`, converted to `dtype`.
template <typename T>
Tensor make_scalar(T value, Dtype type_of_value, Dtype dtype) {
  Tensor wide = Tensor::empty({}, type_of_value, Device{}, cpu_allocator(), StreamRef{});
  *wide.data_as<T>() = value;
  if (dtype == type_of_value) return wide;
  Tensor narrow = Tensor::empty({}, dtype, Device{}, cpu_allocator(), StreamRef{});
  strided_convert(narrow, wide);
  return narrow;
}

[[noreturn]] void refuse_kind(PyObject* object, Dtype dtype) {
  const char* expected = dtype == Dtype::kBool      ? "a bool"
                         : is_floating_point(dtype) ? "a float or an int"
                                                    : "an int";
  throw DtypeError(str("found a Python ", Py_TYPE(object)->tp_name, "; a number for ",
                       dtype_name(dtype), " must be ", expected, " (or pass a tensor)"));
}

}  // namespace

Value scalar_from_object(PyObject* object) {
  if (object == Py_None) return std::monostate{};
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return int64_from(object);
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (PyUnicode_Check(object)) return std::string(py::str(py::handle(object)));
  if (type_info(object).source == Source::kNumpyScalar) {
    const py::object item = py::handle(object).attr("item")();
    if (type_info(item.ptr()).source == Source::kScalar || PyUnicode_Check(item.ptr())) {
      return scalar_from_object(item.ptr());
    }
  }
  throw InputError(str("found ", with_article(Py_TYPE(object)->tp_name),
                       "; this input was compiled in and takes only that value"));
}

Tensor tensor_from_scalar(PyObject* object, const InputSpec& spec) {
  if (!spec.tensor.sizes.empty()) {
    throw InputError(str("found the Python ", Py_TYPE(object)->tp_name, " ",
                         std::string(py::repr(object)), "; pass a tensor"));
  }
  const Dtype dtype = spec.tensor.dtype;
  if (PyBool_Check(object)) {
    if (dtype != Dtype::kBool) refuse_kind(object, dtype);
    return make_scalar<bool>(object == Py_True, Dtype::kBool, dtype);
  }
  if (is_floating_point(dtype)) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    return make_scalar<double>(value, Dtype::kFloat64, dtype);
  }
  if (dtype == Dtype::kBool || !PyLong_Check(object)) refuse_kind(object, dtype);
  const int64_t value = int64_from(object);
  const auto [low, high] = integer_range(dtype);
  if (value < low || value > high) {
    throw InputError(str("the integer ", value, " does not fit ", dtype_name(dtype), " (", low,
                         " to ", high, ")"));
  }
  return make_scalar<int64_t>(value, Dtype::kInt64, dtype);
}

}  // namespace cudaexec::python
