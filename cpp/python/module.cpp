// The extension module: registers every class, one file each.
#include <pybind11/pybind11.h>

#include "base/version.h"

PYBIND11_MODULE(_core, m) { m.attr("__version__") = cudaexec::kVersion; }
