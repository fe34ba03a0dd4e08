#include <memory>
#include <string>
#include <vector>

#include "python/annotations.h"
#include "python/bind_binding.h"
#include "python/bind_errors.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "python/method_call.h"
#include "python/specs.h"

namespace cudaexec::python {
namespace {

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return slot_call(self_cast<PyMethod>(self), args, kwargs);
}

PyObject* run_on(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    return fastcall_on(self_cast<PyMethod>(self), args, count, names);
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

PyMethodDef run_on_definition{
    "run_on", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_on)),
    METH_FASTCALL | METH_KEYWORDS,
    "run_on($self, stream, /, *args, **kwargs)\n--\n\n"
    "Runs the method on a CUDA stream.\n\n"
    "method(*args, stream=stream) does the same, unless an input of the method is named "
    "'stream'.\n\n"
    "stream: an int handle (0 or 1: the legacy default stream, 2: this thread's), a\n"
    "torch.cuda.Stream, a cupy stream, an object with __cuda_stream__, or None for the stream\n"
    "of the inputs, else one of this thread. It has to live as long as the outputs.\n\n"
    "Raises InputError for anything else and for a program on the CPU; DeviceError for a stream "
    "of\n"
    "another device; else as a call."};

void set_call(PyHeapTypeObject* type) noexcept { type->ht_type.tp_call = call; }

/// Arguments given as one object: a tuple or list of positional ones, a dict of named ones, or the
/// only one.
class PackedArguments {
 public:
  explicit PackedArguments(const py::object& inputs) {
    if (py::isinstance<py::dict>(inputs)) {
      const auto named = py::reinterpret_borrow<py::dict>(inputs);
      py::list names;
      for (const auto& [name, value] : named) {
        names.append(name);
        values_.push_back(value.ptr());
      }
      names_ = py::tuple(names);
    } else if (py::isinstance<py::tuple>(inputs) || py::isinstance<py::list>(inputs)) {
      for (const py::handle& each : inputs) values_.push_back(each.ptr());
    } else {
      values_.push_back(inputs.ptr());
    }
  }
  [[nodiscard]] CallArguments get() const {
    if (names_) return {values_.data(), 0, names_.ptr()};
    return {values_.data(), values_.size(), nullptr};
  }

 private:
  std::vector<PyObject*> values_;
  py::object names_;
};

ArraysByName stats(const PyMethod& self) {
  const std::string text = without_gil([&] { return self.method().describe_json(); });
  return py::module_::import("json").attr("loads")(text);
}

std::shared_ptr<PyBinding> bind(const PyMethod& self, const py::object& inputs,
                                const py::object& outputs) {
  const PackedArguments arguments(inputs);
  return std::make_shared<PyBinding>(self, arguments.get(), outputs);
}

void warmup(const PyMethod& self, const py::args& args, const py::kwargs& kwargs) {
  std::vector<PyObject*> values;
  for (const py::handle& each : args) values.push_back(each.ptr());
  py::list names;
  for (const auto& [name, value] : kwargs) {
    names.append(name);
    values.push_back(value.ptr());
  }
  const py::tuple keywords(names);
  self.warm_up({values.data(), args.size(), keywords.size() == 0 ? nullptr : keywords.ptr()});
}

}  // namespace

void register_method(py::module_& m) {
  py::class_<PyMethod, std::shared_ptr<PyMethod>> cls(
      m, "Method", py::is_final(), py::custom_type_setup(set_call),
      "One entry point of a program; call it as the model was called.\n\n"
      "It keeps what it needs of its module alive. Any number of threads may call it. The keyword\n"
      "stream= chooses the CUDA stream, see run_on().");
  cls.def_property_readonly(
         "name", [](const PyMethod& self) { return self.spec().name; }, "Its name in the program.")
      .def_property_readonly(
          "inputs", [](const PyMethod& self) { return SpecList(input_specs(self.spec())); },
          "The flat inputs, in the order of the structure.")
      .def_property_readonly(
          "outputs", [](const PyMethod& self) { return SpecList(output_specs(self.spec())); },
          "The flat outputs, in the order of the structure.")
      .def("bind", &bind, py::arg("inputs"), py::arg("outputs"), py::call_guard<BindingScope>(),
           "Prepares calls on memory of the caller's own.\n\n"
           "inputs: the arguments, as a tuple (a dict: by name). outputs: one array per flat\n"
           "output, in a tuple (or the only one): a writable numpy array, a torch tensor or a\n"
           "cudaexec.Tensor of its dtype and shape, any strides, no shared memory; None for\n"
           "outputs that are no tensors. The Binding keeps them alive. Its run() reads the\n"
           "inputs as they are then. With CUDA graphs, from the second run on, it is one launch,\n"
           "and inputs and outputs on the GPU in the program's layout are not copied. It counts\n"
           "for GraphOptions.max_graphs, but not for strict.\n\n"
           "Raises as a call does; InputError for outputs that share memory with others;\n"
           "NotSupported if the shape of an output is known only after a call.")
      .def("warmup", &warmup, py::call_guard<BindingScope>(),
           "Calls the method until inputs like these have their CUDA graph.\n\n"
           "That is GraphOptions.warmup + 1 calls, one after another: the container that serves\n"
           "them gets the graph. Captures in place may follow later. The calls change the state\n"
           "as any others do; tokens that they add to a KV cache are forgotten. Without graphs:\n"
           "one call, which loads the method's kernels. Raises as a call does.")
      .def("stats", &stats, py::call_guard<BindingScope>(),
           "How it was used: its entry in Module.stats()[\"methods\"].\n\n"
           "name, which code runs and why other code does not, uses_state, calls, errors and\n"
           "containers over all sessions. With CUDA graphs also graphs: captures, replays,\n"
           "failures (of captures), evictions (signatures given up for others), reason (why the\n"
           "method gets none) and keys, an entry for each signature in each container: inputs,\n"
           "phase (eager, warmup, capture, replay or disabled), calls, captures, replays,\n"
           "in_place (those on the call's own memory), nbytes kept, and the reason if it is\n"
           "disabled. Captures in place are in none of captures, failures and nbytes.")
      .def("__repr__", [](const PyMethod& self) {
        return "<cudaexec.Method " + method_text(self.spec()) + ">";
      });
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  cls.attr("run_on") =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &run_on_definition));
}

}  // namespace cudaexec::python
