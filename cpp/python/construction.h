// Classes whose objects only the core makes.
#pragma once

#include <pybind11/pybind11.h>

namespace cudaexec::python {

namespace py = pybind11;

/// Makes `cls.__new__(cls)` a TypeError for every bound class without a constructor, in `m` and its
/// submodules: pybind11 would give an object with nothing behind it. Called when all are
/// registered.
void refuse_bare_objects(const py::module_& m);

}  // namespace cudaexec::python
