// The extension module: registers every class, one file each.
#include <pybind11/pybind11.h>

#include "base/version.h"
#include "python/bind_format.h"
#include "python/bindings.h"
#include "python/construction.h"
#include "python/gil.h"
#include "python/wrong_arguments.h"

PYBIND11_MODULE(_core, m) {
  namespace python = cudaexec::python;
  m.doc() = "The compiled core of cudaexec; use it through the package cudaexec.";
  m.attr("__version__") = cudaexec::kVersion;
  python::register_errors(m);
  python::register_log(m);
  python::register_format(m);
  python::register_tensor(m);
  python::register_binding(m);
  python::register_method(m);
  python::register_session(m);
  python::register_module(m);
  python::register_ops(m);
  python::register_ops_misc(m);
  python::register_aoti(m);
  python::register_libraries(m);
  python::register_testing(m);
  python::register_cuda_testing(m);
  python::register_aoti_testing(m);
  python::register_kv_testing(m);
  python::refuse_bare_objects(m);
  python::explain_wrong_arguments(m);

  // Without this, threads that come back from the core while the interpreter exits end the process.
  pybind11::module_::import("atexit").attr("register")(
      pybind11::cpp_function(&python::close_exit_gate));
}
