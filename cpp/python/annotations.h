// Types that have a name of their own in the signatures that pybind11 writes, and so in the
// generated stub.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <string>
#include <utility>

namespace cudaexec::python {

namespace py = pybind11;

/// A numpy.ndarray.
struct NumpyArray : py::object {
  NumpyArray() = default;
  explicit NumpyArray(py::object array) : py::object(std::move(array)) {}
};

/// Anything at all.
struct AnyObject : py::object {
  AnyObject() = default;
  explicit AnyObject(py::object object) : py::object(std::move(object)) {}
};

inline bool is_anything(PyObject* object) noexcept { return object != nullptr; }

/// A str, checked by `text_of` so that a refusal is in our words.
struct TextArgument : py::object {
  PYBIND11_OBJECT_DEFAULT(TextArgument, py::object, is_anything)
};

/// An int, checked by the function that takes it.
struct IntArgument : py::object {
  PYBIND11_OBJECT_DEFAULT(IntArgument, py::object, is_anything)
};

/// A dict of names to arrays, checked by the function that takes it.
struct ArraysArgument : py::object {
  PYBIND11_OBJECT_DEFAULT(ArraysArgument, py::object, is_anything)
};

/// @throws py::type_error for anything but a str: "<where>: expected a str, got int".
inline std::string text_of(const TextArgument& argument, const std::string& where) {
  if (PyUnicode_Check(argument.ptr())) return py::cast<std::string>(argument);
  throw py::type_error(where + ": expected a str, got " + Py_TYPE(argument.ptr())->tp_name);
}

/// A cudaexec.Tensor.
struct TensorResult : py::object {
  TensorResult() = default;
  explicit TensorResult(py::object tensor) : py::object(std::move(tensor)) {}
};

/// A list of cudaexec.TensorSpec.
struct SpecList : py::object {
  SpecList() = default;
  explicit SpecList(py::object specs) : py::object(std::move(specs)) {}
};

using ByteCounts = py::typing::Dict<py::str, py::int_>;
using TensorsByName = py::typing::Dict<py::str, TensorResult>;
using ArraysByName = py::typing::Dict<py::str, AnyObject>;
using IntTuple = py::typing::Tuple<py::int_, py::ellipsis>;

}  // namespace cudaexec::python

namespace pybind11::detail {

template <>
struct handle_type_name<cudaexec::python::NumpyArray> {
  static constexpr auto name = const_name("numpy.ndarray[typing.Any, typing.Any]");
};
template <>
struct handle_type_name<cudaexec::python::AnyObject> {
  static constexpr auto name = const_name("typing.Any");
};
template <>
struct handle_type_name<cudaexec::python::TextArgument> {
  static constexpr auto name = const_name("str");
};
template <>
struct handle_type_name<cudaexec::python::IntArgument> {
  static constexpr auto name = const_name("int");
};
template <>
struct handle_type_name<cudaexec::python::ArraysArgument> {
  static constexpr auto name = const_name("dict[str, typing.Any]");
};
template <>
struct handle_type_name<cudaexec::python::TensorResult> {
  static constexpr auto name = const_name("cudaexec._core.Tensor");
};
template <>
struct handle_type_name<cudaexec::python::SpecList> {
  static constexpr auto name = const_name("list[cudaexec.specs.TensorSpec]");
};

}  // namespace pybind11::detail
