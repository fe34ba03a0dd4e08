// Python numbers, strings and None as inputs.
#pragma once

#include <Python.h>

#include "format/manifest.h"
#include "runtime/module.h"

namespace cudaexec::python {

/// The value of an input that was compiled in: None, bool, int, float, str, or a numpy scalar of
/// these. Whether it is the right value is checked by the runtime.
/// @throws InputError for other types and integers beyond 64 bits.
Value scalar_from_object(PyObject* object);

/// A Python number for a tensor input without dimensions, as a tensor of the input's dtype: bool
/// for bool, int for integers (within their range), int or float for floating point.
/// @throws InputError if the input has dimensions, DtypeError if the number is of another kind.
Tensor tensor_from_scalar(PyObject* object, const InputSpec& spec);

}  // namespace cudaexec::python
