// Calls of bound functions with arguments that they do not take are refused in our words.
#pragma once

#include <pybind11/pybind11.h>

namespace cudaexec::python {

namespace py = pybind11;

/// For the methods of the public classes of `m`: where pybind11 would list signatures of C++, the
/// TypeError says "Module.method: expected (name: str), got (int, int)".
void explain_wrong_arguments(const py::module_& m);

}  // namespace cudaexec::python
