#include "python/wrong_arguments.h"

#include <string>
#include <unordered_map>

#include "base/str.h"
#include "python/bind_errors.h"

namespace cudaexec::python {
namespace {

using Varargs = PyObject* (*)(PyObject*, PyObject*, PyObject*);
using Fastcall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

struct Known {
  PyCFunction original = nullptr;
  std::string name;       // "Module.method"
  std::string arguments;  // "(name: str)"
};

/// By what pybind11 gives its functions as `self`. Lives as long as the process, as they do.
std::unordered_map<PyObject*, Known>& known() {
  static auto* const functions = new std::unordered_map<PyObject*, Known>();
  return *functions;
}

void replace_all(std::string& text, const std::string& old, const std::string& with) {
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at)) {
    text.replace(at, old.size(), with);
    at += with.size();
  }
}

/// From the first line of a docstring, "method(self: cudaexec._core.Module, name: str) -> ...".
std::string arguments_of(const std::string& doc) {
  const size_t open = doc.find('(');
  const size_t close = doc.find(") -> ");
  if (open == std::string::npos || close == std::string::npos) return "()";
  std::string text = doc.substr(open + 1, close - open - 1);
  if (text.starts_with("self: ")) {
    const size_t comma = text.find(", ");
    text = comma == std::string::npos ? "" : text.substr(comma + 2);
  }
  replace_all(text, "cudaexec._core.", "cudaexec.");
  replace_all(text, "typing.", "");
  replace_all(text, "SupportsInt | SupportsIndex", "int");
  return "(" + text + ")";
}

/// The types of what was passed; the first argument is the object itself.
std::string found_text(PyObject* const* values, size_t count, PyObject* names) {
  const auto named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  std::string text;
  for (size_t i = 1; i < count + named; ++i) {
    if (i > 1) text += ", ";
    if (i >= count) {
      const py::handle name = PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i - count));
      text += std::string(py::str(name)) + "=";
    }
    text += Py_TYPE(values[i])->tp_name;
  }
  return "(" + text + ")";
}

/// Replaces the TypeError with which pybind11 refuses arguments; leaves every other one.
void explain(PyObject* self, PyObject* const* values, size_t count, PyObject* names) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  py::error_already_set raised;
  const std::string text = py::str(raised.value());
  if (text.find("(): incompatible function arguments") == std::string::npos) {
    raised.restore();
    return;
  }
  const Known& function = known().at(self);
  PyErr_SetString(PyExc_TypeError, str(function.name, ": expected ", function.arguments, ", got ",
                                       found_text(values, count, names))
                                       .c_str());
}

/// As above, where no exception may leave.
void explain_safely(PyObject* self, PyObject* const* values, size_t count,
                    PyObject* names) noexcept {
  try {
    explain(self, values, count, names);
  } catch (...) {
    set_python_error_from_current_exception();
  }
}

PyObject* fastcall(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  const auto call =
      reinterpret_cast<Fastcall>(reinterpret_cast<void (*)()>(known().at(self).original));
  PyObject* const result = call(self, values, count, names);
  if (result == nullptr) explain_safely(self, values, static_cast<size_t>(count), names);
  return result;
}

PyObject* varargs(PyObject* self, PyObject* args, PyObject* kwargs) {
  const auto call =
      reinterpret_cast<Varargs>(reinterpret_cast<void (*)()>(known().at(self).original));
  PyObject* const result = call(self, args, kwargs);
  if (result == nullptr) {
    PyObject* const* values = &PyTuple_GET_ITEM(args, 0);
    explain_safely(self, values, static_cast<size_t>(PyTuple_GET_SIZE(args)), nullptr);
  }
  return result;
}

/// pybind11 3.0 has functions of the older calling convention, 3.1 of the newer.
void watch(PyObject* function, const std::string& class_name, const std::string& doc) {
  auto* const object = reinterpret_cast<PyCFunctionObject*>(function);
  PyMethodDef& definition = *object->m_ml;
  const bool fast = definition.ml_flags == (METH_FASTCALL | METH_KEYWORDS);
  if (!fast && definition.ml_flags != (METH_VARARGS | METH_KEYWORDS)) return;
  known()[object->m_self] = {definition.ml_meth, str(class_name, ".", definition.ml_name),
                             arguments_of(doc)};
  definition.ml_meth = fast ? reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fastcall))
                            : reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(varargs));
}

}  // namespace

void explain_wrong_arguments(const py::module_& m) {
  for (const auto& [name, cls] : py::reinterpret_borrow<py::dict>(m.attr("__dict__"))) {
    if (PyType_Check(cls.ptr()) == 0) continue;
    for (const auto& [key, value] : py::dict(cls.attr("__dict__"))) {
      if (PyInstanceMethod_Check(value.ptr()) == 0) continue;
      PyObject* const function = PyInstanceMethod_GET_FUNCTION(value.ptr());
      if (PyCFunction_Check(function) == 0) continue;
      const py::object doc = py::reinterpret_borrow<py::object>(function).attr("__doc__");
      if (doc.is_none()) continue;
      watch(function, py::str(name), py::str(doc));
    }
  }
}

}  // namespace cudaexec::python
