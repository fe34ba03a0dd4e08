// A Binding as Python holds it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "python/convert_in.h"
#include "python/method_call.h"

namespace cudaexec::python {

class PyBinding {
 public:
  /// @throws InputError and others for what the method cannot take.
  PyBinding(const PyMethod& method, const CallArguments& arguments, const py::object& outputs);
  ~PyBinding();
  PyBinding(const PyBinding&) = delete;
  PyBinding& operator=(const PyBinding&) = delete;

  void run(const py::object& stream);

 private:
  Borrowed borrowed_;  // keeps the memory
  Device device_;
  std::string stream_place_;  // for messages
  bool on_gpu_ = false;
  std::shared_ptr<Binding> binding_;
};

}  // namespace cudaexec::python
