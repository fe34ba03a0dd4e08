// Values of the core to Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include "python/convert_in.h"
#include "runtime/module.h"

namespace cudaexec::python {

namespace py = pybind11;

/// An object over the tensor's memory, of the library that `inputs` came from: a torch tensor, a
/// numpy array, or else a cudaexec.Tensor. bfloat16 becomes a numpy array only where ml_dtypes is
/// installed, memory of a GPU never.
/// @throws py::error_already_set, DeviceError.
py::object object_from_tensor(Tensor tensor, const Borrowed& inputs);

/// As above; scalars become int, float, bool, str and None.
py::object object_from_value(Value value, const Borrowed& inputs);

}  // namespace cudaexec::python
