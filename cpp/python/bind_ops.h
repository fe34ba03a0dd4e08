// The operators as `_core._ops`, for tests: each takes and returns `Array`.
#pragma once

#include <pybind11/pybind11.h>

#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::python {

namespace py = pybind11;

void register_ops(py::module_& m);
void register_linear_ops(py::module_& m);
void register_convolution_ops(py::module_& m);
void register_attention_ops(py::module_& m);

/// Memory of an operator called outside a run.
OpContext ops_context();

}  // namespace cudaexec::python
