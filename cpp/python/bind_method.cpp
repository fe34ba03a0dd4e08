#include "python/annotations.h"
#include "python/bindings.h"
#include "python/method_call.h"
#include "python/specs.h"

namespace cudaexec::python {
namespace {

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return slot_call(self_cast<PyMethod>(self), args, kwargs);
}

void set_call(PyHeapTypeObject* type) noexcept { type->ht_type.tp_call = call; }

}  // namespace

void register_method(py::module_& m) {
  py::class_<PyMethod, std::shared_ptr<PyMethod>>(
      m, "Method", py::is_final(), py::custom_type_setup(set_call),
      "One entry point of a program; call it as the model was called.\n\n"
      "It keeps what it needs of its module alive. Any number of threads may call it.")
      .def_property_readonly(
          "name", [](const PyMethod& self) { return self.spec().name; }, "Its name in the program.")
      .def_property_readonly(
          "inputs", [](const PyMethod& self) { return SpecList(input_specs(self.spec())); },
          "The flat inputs, in the order of the structure.")
      .def_property_readonly(
          "outputs", [](const PyMethod& self) { return SpecList(output_specs(self.spec())); },
          "The flat outputs, in the order of the structure.")
      .def("__repr__", [](const PyMethod& self) {
        return "<cudaexec.Method " + method_text(self.spec()) + ">";
      });
}

}  // namespace cudaexec::python
