// A method as Python calls it: arguments to flat values, the call without the GIL, values to a
// structure.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "python/arguments.h"
#include "python/pytree.h"
#include "runtime/module.h"

namespace cudaexec::python {

namespace py = pybind11;

class PyMethod {
 public:
  /// @throws FormatError if the method's structures do not fit its inputs and outputs.
  explicit PyMethod(std::shared_ptr<Method> method);
  ~PyMethod();
  PyMethod(const PyMethod&) = delete;
  PyMethod& operator=(const PyMethod&) = delete;

  [[nodiscard]] const MethodSpec& spec() const noexcept { return method_->spec(); }
  [[nodiscard]] py::object call(const CallArguments& arguments) const;

 private:
  std::shared_ptr<Method> method_;
  Signature signature_;
  TreeNode out_tree_;
};

/// The body of a METH_FASTCALL | METH_KEYWORDS function that calls `method`.
PyObject* fastcall(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                   PyObject* names) noexcept(false);
/// The body of a `tp_call` slot.
PyObject* slot_call(const PyMethod& method, PyObject* args, PyObject* kwargs) noexcept(false);

}  // namespace cudaexec::python
