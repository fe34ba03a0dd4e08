#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "python/annotations.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/bindings.h"
#include "python/convert_in.h"
#include "python/gil.h"
#include "python/held_inputs.h"
#include "python/method_call.h"

namespace cudaexec::python {
namespace {

/// What a Python Module holds: the program and the Method objects made so far.
class PyModule {
 public:
  explicit PyModule(std::shared_ptr<Module> module) : module_(std::move(module)) {}
  ~PyModule() {
    without_gil([this] { module_.reset(); });
  }
  PyModule(const PyModule&) = delete;
  PyModule& operator=(const PyModule&) = delete;

  [[nodiscard]] Module& module() const noexcept { return *module_; }

  std::shared_ptr<PyMethod> method(const std::string& name) {
    if (const auto found = methods_.find(name); found != methods_.end()) return found->second;
    auto made = std::make_shared<PyMethod>(without_gil([&] { return module_->method(name); }));
    return methods_.try_emplace(name, std::move(made)).first->second;
  }

  const PyMethod& forward() {
    if (!forward_) forward_ = method("forward");
    return *forward_;
  }

 private:
  std::shared_ptr<Module> module_;
  std::map<std::string, std::shared_ptr<PyMethod>> methods_;
  std::shared_ptr<PyMethod> forward_;
};

/// Methods (none: all), warm-up runs, signatures to remember, strict.
using GraphSettings = std::tuple<std::vector<std::string>, uint32_t, size_t, bool>;

/// Paths come as bytes: they need not be text.
std::shared_ptr<PyModule> load(const py::bytes& pte, const py::bytes& ptd,
                               const std::string& device, int threads, bool verify,
                               size_t memory_limit, const std::string& isa,
                               const std::optional<GraphSettings>& graphs) {
  LoadOptions options{threads, verify, memory_limit, isa, {}};
  if (graphs) {
    const auto& [methods, warmup, max_graphs, strict] = *graphs;
    options.graphs = {true, methods, warmup, max_graphs, strict};
  }
  const std::string pte_path = pte;
  const std::string ptd_path = ptd;
  return std::make_shared<PyModule>(
      without_gil([&] { return Module::load(pte_path, ptd_path, device, options); }));
}

PyObject* forward(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    return fastcall(self_cast<PyModule>(self).forward(), args, count, names);
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  try {
    return slot_call(self_cast<PyModule>(self).forward(), args, kwargs);
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

void set_call(PyHeapTypeObject* type) noexcept { type->ht_type.tp_call = call; }

PyMethodDef forward_definition{
    "forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(forward)),
    METH_FASTCALL | METH_KEYWORDS,
    "forward($self, /, *args, **kwargs)\n--\n\n"
    "Runs the method 'forward'; calling the module does the same.\n\n"
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
    "runs; OutOfMemory; ClosedError."};

/// Deals with what earlier calls left: inputs in use by the GPU then, failures of destructors.
void tidy() {
  release_finished();
  if (has_cleanup_reports()) warn_of_cleanup_failures();
}

ByteCounts memory_stats(const PyModule& self) {
  tidy();
  const MemoryStats stats = without_gil([&] { return self.module().memory_stats(); });
  ByteCounts fields;
  fields["weights_mapped"] = stats.weights_mapped;
  fields["weights_private"] = stats.weights_private;
  fields["weights_device"] = stats.weights_device;
  fields["state"] = stats.state;
  fields["working_current"] = stats.working_current;
  fields["working_peak"] = stats.working_peak;
  fields["cached"] = stats.cached;
  return fields;
}

TensorsByName state_dict(const PyModule& self) {
  TensorsByName result;
  for (auto& [name, tensor] : without_gil([&] { return self.module().state(); })) {
    result[py::str(name)] = make_tensor(std::move(tensor));
  }
  return result;
}

std::shared_ptr<PyMethod> method(PyModule& self, const TextArgument& name) {
  return self.method(text_of(name, "Module.method: name"));
}

void manual_seed(const PyModule& self, const IntArgument& seed) {
  const char* kExpected = "Module.manual_seed: seed: expected an int from 0 to 2**64 - 1, ";
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
  if (!number) {
    PyErr_Clear();
    throw py::type_error(str(kExpected, "got ", Py_TYPE(seed.ptr())->tp_name));
  }
  const uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw InputError(str(kExpected, "got ", std::string(py::str(number))));
  }
  without_gil([&] { self.module().manual_seed(value); });
}

void load_weights(const PyModule& self, const ArraysArgument& argument) {
  if (!PyDict_Check(argument.ptr())) {
    throw py::type_error(
        str("Module.load_weights: weights: expected a dict of names to arrays, got ",
            Py_TYPE(argument.ptr())->tp_name));
  }
  const auto weights = py::reinterpret_borrow<py::dict>(argument);
  Borrowed borrowed;
  std::vector<std::pair<std::string, Tensor>> values;
  for (const auto& [key, value] : weights) {
    const std::string name = py::str(key);
    try {
      values.emplace_back(name, tensor_from_object(value.ptr(), borrowed));
    } catch (const Error& error) {
      throw Error(error.kind(), str("load_weights: '", name, "': ", error.what()));
    }
  }
  borrowed.gpu.wait();
  without_gil([&] { self.module().load_weights(values); });
  tidy();
}

ArraysByName stats(const PyModule& self) {
  const std::string text = without_gil([&] { return self.module().describe_json(); });
  return py::module_::import("json").attr("loads")(text);
}

void close(const PyModule& self) {
  without_gil([&] { self.module().close(); });
  tidy();
}

size_t trim(const PyModule& self) {
  release_finished();
  const size_t released = without_gil([&] { return self.module().trim(); });
  tidy();
  return released;
}

std::string repr(const PyModule& self) {
  return str("<cudaexec.Module ", self.module().closed() ? "(closed) " : "",
             list_str(self.module().method_names()), ">");
}

using Class = py::class_<PyModule, std::shared_ptr<PyModule>>;

void bind_state(Class& cls) {
  cls.def("memory_stats", &memory_stats, py::call_guard<BindingScope>(),
          "Bytes in use, by purpose.\n\n"
          "weights_mapped (used in place from the file), weights_private, weights_device (on a "
          "GPU),\n"
          "state (mutable buffers), working_current, working_peak, cached (trim() returns it).")
      .def("trim", &trim, py::call_guard<BindingScope>(),
           "Returns cached memory to the system; gives the bytes released.\n\n"
           "Also lets go of inputs that were kept until the GPU had read them.")
      .def("state_dict", &state_dict, py::call_guard<BindingScope>(),
           "Weights and mutable buffers by name: copies, as cudaexec.Tensor. Raises ClosedError.")
      .def("load_weights", &load_weights, py::arg("weights"), py::call_guard<BindingScope>(),
           "Replaces weights and buffers by name, all of them or (on an error) none.\n\n"
           "weights: names to arrays of the same dtype and shape, in host or GPU memory; the "
           "values\n"
           "are copied, after waiting for the GPU work that makes them.\n"
           "Raises WeightsError for unknown names, ShapeError, DtypeError, ClosedError.")
      .def("manual_seed", &manual_seed, py::arg("seed"),
           "Seeds the random numbers of the program (0 <= seed < 2**64).");
}

void bind_lifetime(Class& cls) {
  cls.def("close", &close, py::call_guard<BindingScope>(),
          "Frees everything, after calls in flight.\n\n"
          "Later calls raise ClosedError; outputs stay valid. Closing twice does nothing.")
      .def_property_readonly(
          "closed", [](const PyModule& self) { return self.module().closed(); },
          "Whether close() was called.")
      .def("__enter__", [](const std::shared_ptr<PyModule>& self) { return self; })
      .def(
          "__exit__", [](const PyModule& self, const py::args&) { close(self); },
          py::call_guard<BindingScope>());
}

}  // namespace

void register_module(py::module_& m) {
  Class cls(m, "Module", py::custom_type_setup(set_call),
            "A loaded program; made by cudaexec.load(). Any number of threads may use it.");
  cls.def_static("_load", &load, py::arg("pte"), py::arg("ptd"), py::arg("device"), py::kw_only(),
                 py::arg("threads"), py::arg("verify"), py::arg("memory_limit"), py::arg("isa"), py::arg("graphs"),
                 py::call_guard<BindingScope>())
      .def("method", &method, py::arg("name"),
           "The method of that name.\n\n"
           "Raises InputError if there is none, TargetError or NotSupported if it cannot run here.")
      .def_property_readonly(
          "methods", [](const PyModule& self) { return self.module().method_names(); },
          "Names of the methods, in the order of export.")
      .def("stats", &stats,
           "Files, methods, and for each method which code runs and why other code does not.")
      .def("__repr__", &repr);
  bind_state(cls);
  bind_lifetime(cls);
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  cls.attr("forward") =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &forward_definition));
}

}  // namespace cudaexec::python
