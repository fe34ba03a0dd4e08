#include "python/bind_session.h"

#include "base/str.h"
#include "python/call_surface.h"

namespace cudaexec::python {
namespace {

using Class = py::class_<PySession, std::shared_ptr<PySession>>;

ByteCounts memory_stats(const PySession& self) {
  tidy();
  ByteCounts fields;
  fields["state"] = without_gil([&] { return self.core().state_nbytes(); });
  add_kv(fields, self.core().kv_nbytes());
  return fields;
}

std::shared_ptr<PySession> fork(const PySession& self) {
  return make_session(without_gil([&] { return self.core().fork(); }));
}

std::string repr(const PySession& self) {
  return str("<cudaexec.Session ", self.core().closed() ? "(closed) " : "",
             list_str(self.core().method_names()), ">");
}

void bind_state(Class& cls) {
  cls.def(
         "reset", [](const PySession& self) { without_gil([&] { self.core().reset(); }); },
         "Gives the mutable buffers their initial values: the file's, or load_weights()'s "
         "since.\n\n"
         "A KV cache that the runtime keeps is empty then; its memory stays.\n"
         "It follows the calls so far, on a GPU in stream order, and later calls follow it. "
         "Random\n"
         "numbers go on where they are; manual_seed() starts them again.\n"
         "Raises ClosedError or OutOfMemory, then nothing has changed; DeviceError where the GPU\n"
         "refuses a copy.")
      .def("fork", &fork, py::call_guard<BindingScope>(),
           "Another session that starts with copies of the buffers as they are now.\n\n"
           "Tokens of a KV cache are shared until one of the two writes to their page.\n"
           "The two share nothing but weights; both continue the same sequence of random numbers,\n"
           "until one is seeded. Raises ClosedError, OutOfMemory, DeviceError.")
      .def("state_dict", &state_dict<PySession>, py::call_guard<BindingScope>(),
           "Weights and this session's mutable buffers by name: copies, as cudaexec.Tensor.\n\n"
           "Buffers that no call has used yet have their initial value. Raises ClosedError.")
      .def("manual_seed", &manual_seed<PySession>, py::arg("seed"), kSeedDoc)
      .def("memory_stats", &memory_stats, py::call_guard<BindingScope>(),
           "Bytes of its own, by name.\n\n"
           "state (mutable buffers), and of its KV cache kv_reserved (addresses),\n"
           "kv_mapped (memory behind them; pages that forks share count for each) and kv_used (of\n"
           "these, holding tokens). Raises ClosedError.")
      .def("stats", &stats<PySession>,
           "How it was used.\n\n"
           "state_nbytes, bytes_per_session, and for each method: name, uses_state, calls, errors\n"
           "(calls that raised, of these), containers (copies of the compiled model of its own).");
}

}  // namespace

std::shared_ptr<PySession> make_session(std::shared_ptr<Session> session) {
  return std::make_shared<PySession>(std::move(session));
}

void register_session(py::module_& m) {
  Class cls(
      m, "Session", py::is_final(), py::custom_type_setup(set_surface_call<PySession>),
      "Mutable buffers and random numbers of its own over a module's weights.\n\n"
      "Made by Module.session(); called as the module is. Buffers are copied on first use, so\n"
      "a new session costs nothing. Any number of threads may use one: calls that use its\n"
      "buffers run one after the other, those of other sessions at the same time. It keeps\n"
      "what it needs of the module alive, and is closed when the module is.");
  bind_surface(cls);
  bind_state(cls);
  cls.def("close", &close<PySession>, py::call_guard<BindingScope>(),
          "Frees its buffers, after calls in flight.\n\n"
          "Later calls raise ClosedError; outputs stay valid. Closing twice does nothing.")
      .def("__repr__", &repr);
}

}  // namespace cudaexec::python
