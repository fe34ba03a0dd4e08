// Descriptions of a method's inputs and outputs for Python.
#pragma once

#include <pybind11/pybind11.h>

#include "format/manifest.h"

namespace cudaexec::python {

/// Lists of cudaexec.specs.TensorSpec, one per flat leaf.
pybind11::list input_specs(const MethodSpec& method);
pybind11::list output_specs(const MethodSpec& method);

/// "forward(x: float32[s0, 64]) -> float32[s0, 10]"
std::string method_text(const MethodSpec& method);

}  // namespace cudaexec::python
