// A method as Python calls it: arguments to flat values, the call without the GIL, values to a
// structure.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "python/arguments.h"
#include "python/pytree.h"
#include "runtime/module.h"

namespace cudaexec::python {

namespace py = pybind11;

/// What one call needs, kept for later ones so that they need no allocation.
struct CallScratch {
  Borrowed borrowed;  // outlives the values
  std::vector<Value> inputs, outputs;
  std::vector<py::object> objects;

  /// Releases what the call used. With the GIL; may run Python code, and calls.
  void clear() noexcept;
};

class PyMethod {
 public:
  /// @throws FormatError if the method's structures do not fit its inputs and outputs.
  explicit PyMethod(std::shared_ptr<Method> method);
  ~PyMethod();
  PyMethod(const PyMethod&) = delete;
  PyMethod& operator=(const PyMethod&) = delete;

  [[nodiscard]] const MethodSpec& spec() const noexcept { return method_->spec(); }
  /// `stream` (null: none) is where the call runs. A keyword argument `stream` means the same,
  /// unless the method has an input of that name.
  [[nodiscard]] py::object call(const CallArguments& arguments, PyObject* stream = nullptr) const;
  /// Calls until inputs like these have their CUDA graph; once without graphs.
  void warm_up(const CallArguments& arguments) const;

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] Method& method() const noexcept { return *method_; }
  [[nodiscard]] const Signature& signature() const noexcept { return signature_; }

 private:
  class Scratch;
  [[nodiscard]] py::object run(const CallArguments& arguments, PyObject* stream) const;

  std::shared_ptr<Method> method_;
  Device device_;
  Signature signature_;
  TreeNode out_tree_;
  std::string stream_place_;  // for messages
  // Guarded by the GIL.
  mutable std::vector<std::unique_ptr<CallScratch>> idle_;
  mutable size_t num_scratches_ = 0;  // most idle ones there can be
};

/// The body of a METH_FASTCALL | METH_KEYWORDS function that calls `method`.
PyObject* fastcall(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                   PyObject* names) noexcept(false);
/// As above for `run_on`, whose first argument is the stream.
PyObject* fastcall_on(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                      PyObject* names) noexcept(false);
/// The body of a `tp_call` slot.
PyObject* slot_call(const PyMethod& method, PyObject* args, PyObject* kwargs) noexcept(false);

}  // namespace cudaexec::python
