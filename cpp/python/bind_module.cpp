#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "python/bind_session.h"
#include "python/call_surface.h"
#include "python/convert_in.h"

namespace cudaexec::python {
namespace {

using PyModule = CallSurface<Module>;

/// Methods (none: all), warm-up runs, signatures to remember, strict, in place.
using GraphSettings = std::tuple<std::vector<std::string>, uint32_t, size_t, bool, bool>;

/// Paths come as bytes: they need not be text.
std::shared_ptr<PyModule> load(const py::bytes& pte, const py::bytes& ptd,
                               const std::string& device, int threads, bool verify,
                               size_t memory_limit, const std::string& isa,
                               const std::optional<GraphSettings>& graphs) {
  LoadOptions options{threads, verify, memory_limit, isa, {}};
  if (graphs) {
    const auto& [methods, warmup, max_graphs, strict, in_place] = *graphs;
    options.graphs = {true, methods, warmup, max_graphs, strict, in_place};
  }
  const std::string pte_path = pte;
  const std::string ptd_path = ptd;
  return std::make_shared<PyModule>(
      without_gil([&] { return Module::load(pte_path, ptd_path, device, options); }));
}

ByteCounts memory_stats(const PyModule& self) {
  tidy();
  const MemoryStats stats = without_gil([&] { return self.core().memory_stats(); });
  ByteCounts fields;
  fields["weights_mapped"] = stats.weights_mapped;
  fields["weights_private"] = stats.weights_private;
  fields["weights_device"] = stats.weights_device;
  fields["state"] = stats.state;
  fields["sessions"] = stats.sessions;
  add_kv(fields, stats.kv);
  fields["working_current"] = stats.working_current;
  fields["working_peak"] = stats.working_peak;
  fields["cached"] = stats.cached;
  return fields;
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
  without_gil([&] { self.core().load_weights(values); });
  tidy();
}

size_t trim(const PyModule& self) {
  release_finished();
  const size_t released = without_gil([&] { return self.core().trim(); });
  tidy();
  return released;
}

std::shared_ptr<PySession> session(const PyModule& self) {
  return make_session(without_gil([&] { return self.core().session(); }));
}

std::string repr(const PyModule& self) {
  return str("<cudaexec.Module ", self.core().closed() ? "(closed) " : "",
             list_str(self.core().method_names()), ">");
}

using Class = py::class_<PyModule, std::shared_ptr<PyModule>>;

void bind_state(Class& cls) {
  cls.def("memory_stats", &memory_stats, py::call_guard<BindingScope>(),
          "Bytes in use, by purpose.\n\n"
          "weights_mapped (used in place from the file), weights_private, weights_device (on a\n"
          "GPU), state (mutable buffers of the module itself), sessions (those of all sessions),\n"
          "kv_reserved, kv_mapped and kv_used (KV caches of all sessions and the module itself:\n"
          "addresses, memory behind them, of these holding tokens), working_current and\n"
          "working_peak (on the program's device: outputs that are alive, intermediates,\n"
          "scratch, copies of inputs, CUDA graphs), cached (trim() returns it).")
      .def("trim", &trim, py::call_guard<BindingScope>(),
           "Returns cached memory to the system; gives the bytes released.\n\n"
           "Gives up CUDA graphs (the next calls capture again), idle containers but one per\n"
           "method, and inputs that were kept until the GPU had read them. On a GPU it waits for\n"
           "what cudaexec's own streams of the device are doing, since memory that they free\n"
           "goes back only then. In a forked child only memory of the host is returned.")
      .def("state_dict", &state_dict<PyModule>, py::call_guard<BindingScope>(),
           "Weights and mutable buffers by name: copies, as cudaexec.Tensor. Raises ClosedError.")
      .def(
          "load_weights", &load_weights, py::arg("weights"), py::call_guard<BindingScope>(),
          "Replaces weights and buffers by name, all of them or (on an error) none.\n\n"
          "weights: names to arrays of the same dtype and shape, in host or GPU memory; the "
          "values\n"
          "are copied, after waiting for the GPU work that makes them. Weights change for all\n"
          "sessions. A mutable buffer changes in the module itself; for its sessions the value is\n"
          "the initial one from now on: of new ones, of reset(), of a buffer not used yet.\n"
          "Raises WeightsError for unknown names, ShapeError, DtypeError, ClosedError.")
      .def(
          "reset", [](const PyModule& self) { without_gil([&] { self.core().reset(); }); },
          "Gives the module's own mutable buffers their initial values and empties its KV "
          "cache.\n\n"
          "As Session.reset(). Raises ClosedError, OutOfMemory, DeviceError.")
      .def("manual_seed", &manual_seed<PyModule>, py::arg("seed"), kSeedDoc);
}

}  // namespace

void register_module(py::module_& m) {
  Class cls(
      m, "Module", py::custom_type_setup(set_surface_call<PyModule>),
      "A loaded program; made by cudaexec.load(). Any number of threads may use it.\n\n"
      "It is a session by itself: its calls share one set of mutable buffers. session() makes\n"
      "further ones.");
  cls.def_static("_load", &load, py::arg("pte"), py::arg("ptd"), py::arg("device"), py::kw_only(),
                 py::arg("threads"), py::arg("verify"), py::arg("memory_limit"), py::arg("isa"),
                 py::arg("graphs"), py::call_guard<BindingScope>())
      .def("session", &session, py::call_guard<BindingScope>(),
           "A new Session: mutable buffers and random numbers of its own, the same weights.\n\n"
           "Its buffers start with the initial values, not with the module's current ones.\n"
           "Raises ClosedError.")
      .def(
          "stats", &stats<PyModule>,
          "What was loaded and how it was used.\n\n"
          "Files, methods, how many sessions there are (besides the module itself), and for each\n"
          "method: which code runs and why other code does not, uses_state, and over all sessions\n"
          "calls, errors (calls that raised, of these) and containers alive.")
      .def("close", &close<PyModule>, py::call_guard<BindingScope>(),
           "Frees everything and closes all sessions, after calls in flight.\n\n"
           "Later calls raise ClosedError; outputs stay valid. Closing twice does nothing.")
      .def("__repr__", &repr);
  bind_surface(cls);
  bind_state(cls);
}

}  // namespace cudaexec::python
