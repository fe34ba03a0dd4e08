// What Module and Session have in common in Python: methods by name, forward, state by name.
#pragma once

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "python/annotations.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "python/held_inputs.h"
#include "python/method_call.h"

namespace cudaexec::python {

/// A Module or a Session as Python holds it, with the Method objects made so far.
template <typename Core>
class CallSurface {
 public:
  explicit CallSurface(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~CallSurface() {
    without_gil([this] { core_.reset(); });
  }
  CallSurface(const CallSurface&) = delete;
  CallSurface& operator=(const CallSurface&) = delete;

  static constexpr const char* kName = std::is_same_v<Core, Module> ? "Module" : "Session";
  [[nodiscard]] Core& core() const noexcept { return *core_; }

  std::shared_ptr<PyMethod> method(const std::string& name) {
    if (const auto found = methods_.find(name); found != methods_.end() && !core_->closed()) {
      return found->second;
    }
    auto made = std::make_shared<PyMethod>(without_gil([&] { return core_->method(name); }));
    return methods_.try_emplace(name, std::move(made)).first->second;
  }

  const PyMethod& forward() {
    if (!forward_) forward_ = method("forward");
    return *forward_;
  }

 private:
  std::shared_ptr<Core> core_;
  std::map<std::string, std::shared_ptr<PyMethod>> methods_;
  std::shared_ptr<PyMethod> forward_;
};

/// Deals with what earlier calls left: inputs in use by the GPU then, failures of destructors.
inline void tidy() {
  release_finished();
  if (has_cleanup_reports()) warn_of_cleanup_failures();
}

template <typename Surface>
PyObject* surface_forward(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  try {
    return fastcall(self_cast<Surface>(self).forward(), args, count, names);
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

template <typename Surface>
PyObject* surface_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  try {
    return slot_call(self_cast<Surface>(self).forward(), args, kwargs);
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

template <typename Surface>
void set_surface_call(PyHeapTypeObject* type) noexcept {
  type->ht_type.tp_call = surface_call<Surface>;
}

template <typename Surface>
TensorsByName state_dict(const Surface& self) {
  TensorsByName result;
  for (auto& [name, tensor] : without_gil([&] { return self.core().state(); })) {
    result[py::str(name)] = make_tensor(std::move(tensor));
  }
  return result;
}

template <typename Surface>
ArraysByName stats(const Surface& self) {
  const std::string text = without_gil([&] { return self.core().describe_json(); });
  return py::module_::import("json").attr("loads")(text);
}

template <typename Surface>
void close(const Surface& self) {
  without_gil([&] { self.core().close(); });
  tidy();
}

template <typename Surface>
std::shared_ptr<PyMethod> method(Surface& self, const TextArgument& name) {
  return self.method(text_of(name, str(Surface::kName, ".method: name").c_str()));
}

template <typename Surface>
void rewind(const Surface& self, const IntArgument& position) {
  const std::string expected =
      str(Surface::kName, ".rewind: position: expected an int, the tokens to keep, ");
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(position.ptr()));
  if (!number) {
    PyErr_Clear();
    throw py::type_error(str(expected, "got ", Py_TYPE(position.ptr())->tp_name));
  }
  const int64_t value = PyLong_AsLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw InputError(str(expected, "got ", std::string(py::str(number))));
  }
  without_gil([&] { self.core().rewind(value); });
  tidy();
}

/// The fields of a memory_stats().
inline void add_kv(ByteCounts& fields, const KvBytes& kv) {
  fields["kv_reserved"] = kv.reserved;
  fields["kv_mapped"] = kv.mapped;
  fields["kv_used"] = kv.used;
}

template <typename Surface>
void manual_seed(const Surface& self, const IntArgument& seed) {
  const std::string expected =
      str(Surface::kName, ".manual_seed: seed: expected an int from 0 to 2**64 - 1, ");
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
  if (!number) {
    PyErr_Clear();
    throw py::type_error(str(expected, "got ", Py_TYPE(seed.ptr())->tp_name));
  }
  const uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw InputError(str(expected, "got ", std::string(py::str(number))));
  }
  without_gil([&] { self.core().manual_seed(value); });
}

inline constexpr const char* kSeedDoc =
    "Seeds the random numbers of its own calls.\n\n"
    "seed: 0 <= seed < 2**64. A module and its sessions have a generator each. Raises InputError,\n"
    "ClosedError.";

inline constexpr const char* kForwardDoc =
    "forward($self, /, *args, **kwargs)\n--\n\n"
    "Runs the method 'forward'; calling the object does the same.\n\n"
    "Inputs are given as the model was called, by position or by name: numpy arrays, torch\n"
    "tensors, cudaexec tensors, objects with __dlpack__, __cuda_array_interface__ or the buffer\n"
    "protocol, of exactly the exported dtypes. Their memory is never written. Outputs have the\n"
    "structure that the model returned and own their memory: torch tensors if an input was one,\n"
    "else numpy arrays if an input was one (for host memory), else cudaexec.Tensor.\n\n"
    "A program on a GPU runs on the CUDA stream given by the keyword stream= (see Method.run_on),\n"
    "else on the stream of the inputs, else on one of this thread. It copies host inputs to the\n"
    "GPU. If all tensor inputs are in host memory, so are the outputs, and the call waits for "
    "them;\n"
    "else they are on the GPU, nothing waits, and work on the inputs' stream follows the call.\n\n"
    "Raises InputError, ShapeError, DtypeError or DeviceError, naming the input, before anything\n"
    "runs; OutOfMemory; ClosedError.";

/// What both classes define with the same words.
template <typename Surface>
void bind_surface(py::class_<Surface, std::shared_ptr<Surface>>& cls) {
  static PyMethodDef forward_definition{
      "forward",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(surface_forward<Surface>)),
      METH_FASTCALL | METH_KEYWORDS, kForwardDoc};
  cls.def("method", &method<Surface>, py::arg("name"),
          "The method of that name.\n\n"
          "Raises InputError if there is none, TargetError or NotSupported if it cannot run here,\n"
          "ClosedError.")
      .def_property_readonly(
          "methods", [](const Surface& self) { return self.core().method_names(); },
          "Names of the methods, in the order of export.")
      .def_property_readonly(
          "bytes_per_session", [](const Surface& self) { return self.core().bytes_per_session(); },
          "Bytes of mutable buffers that one session owns, once calls have used all of them.")
      .def_property_readonly(
          "position", [](const Surface& self) { return self.core().position(); },
          "Tokens in its KV cache.\n\nRaises NotSupported if the program has none that the "
          "runtime\n"
          "keeps, ClosedError.")
      .def("rewind", &rewind<Surface>, py::arg("position"), py::call_guard<BindingScope>(),
           "Forgets the tokens of its KV cache from position on, after the calls so far.\n\n"
           "The memory stays. Raises InputError if there are not as many tokens, or if a layer "
           "with\n"
           "a sliding window no longer has the tokens before it (then nothing has changed);\n"
           "NotSupported if the program has no KV cache that the runtime keeps, ClosedError.")
      .def_property_readonly(
          "closed", [](const Surface& self) { return self.core().closed(); },
          "Whether it was closed.")
      .def("__enter__", [](const std::shared_ptr<Surface>& self) { return self; })
      .def(
          "__exit__", [](const Surface& self, const py::args&) { close(self); },
          py::call_guard<BindingScope>());
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  cls.attr("forward") =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &forward_definition));
}

}  // namespace cudaexec::python
