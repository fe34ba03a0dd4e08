// __cuda_array_interface__, version 3, in both directions.
#pragma once

#include "python/convert_in.h"

namespace cudaexec::python {

/// A view of what the object's interface describes; the address is checked with the driver.
/// @throws InputError for a malformed interface, DtypeError, ShapeError; DeviceError if the memory
/// is not a GPU's.
Tensor tensor_from_cuda_array(PyObject* object, Borrowed& borrowed);

/// The interface of a tensor on a GPU. @throws py::attribute_error for other tensors and for
/// bfloat16, so that consumers see no such attribute.
py::dict cuda_array_interface(const Tensor& tensor);

}  // namespace cudaexec::python
