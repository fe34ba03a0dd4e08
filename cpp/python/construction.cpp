#include "python/construction.h"

#include <cstring>
#include <string>

namespace cudaexec::python {
namespace {

PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyErr_Format(PyExc_TypeError, "%s objects are made by cudaexec only; see cudaexec.load()",
               type->tp_name);
  return nullptr;
}

bool is_bound_class(const py::handle& object) {
  return PyType_Check(object.ptr()) != 0 &&
         py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(object.ptr())) != nullptr;
}

/// pybind11 gives every class a slot for `__init__`, which refuses; py::init puts a function there.
bool has_constructor(const py::handle& cls) {
  const py::object init = cls.attr("__dict__").attr("get")("__init__", py::none());
  return !init.is_none() && Py_TYPE(init.ptr()) != &PyWrapperDescr_Type;
}

}  // namespace

void refuse_bare_objects(const py::module_& m) {
  const std::string prefix = std::string(py::str(m.attr("__name__"))) + ".";
  for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(m.attr("__dict__"))) {
    if (PyModule_Check(value.ptr()) != 0) {
      const char* inner = PyModule_GetName(value.ptr());
      if (inner == nullptr) throw py::error_already_set();
      if (std::strncmp(inner, prefix.c_str(), prefix.size()) == 0) {
        refuse_bare_objects(py::reinterpret_borrow<py::module_>(value));
      }
    } else if (is_bound_class(value) && !has_constructor(value)) {
      reinterpret_cast<PyTypeObject*>(value.ptr())->tp_new = refuse_new;
      PyType_Modified(reinterpret_cast<PyTypeObject*>(value.ptr()));
    }
  }
}

}  // namespace cudaexec::python
