// What module.cpp calls: one function per class, each in a file of its own.
#pragma once

#include <pybind11/pybind11.h>

namespace cudaexec::python {

namespace py = pybind11;

void register_errors(py::module_& m);
void register_log(py::module_& m);
void register_tensor(py::module_& m);
void register_method(py::module_& m);
void register_binding(py::module_& m);  // before register_method()
void register_session(py::module_& m);
void register_module(py::module_& m);  // after register_session()
void register_ops(py::module_& m);
void register_ops_misc(py::module_& m);
void register_aoti(py::module_& m);
void register_libraries(py::module_& m);
void register_testing(py::module_& m);
void register_cuda_testing(py::module_& m);  // after register_testing()
void register_aoti_testing(py::module_& m);  // after register_testing()
void register_kv_testing(py::module_& m);    // after register_testing() and register_ops()

/// The C++ object behind `self`, an instance of the class bound for T or of a subclass.
/// @throws py::cast_error if `self.__init__` was never run.
template <typename T>
T& self_cast(PyObject* self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self);
  if (instance->simple_layout && instance->simple_value_holder[0] != nullptr) [[likely]] {
    return *static_cast<T*>(instance->simple_value_holder[0]);
  }
  return py::cast<T&>(py::handle(self));
}

}  // namespace cudaexec::python
