#include "python/annotations.h"
#include "python/bind_errors.h"
#include "python/bindings.h"
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
      .def("__repr__", [](const PyMethod& self) {
        return "<cudaexec.Method " + method_text(self.spec()) + ">";
      });
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  cls.attr("run_on") =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &run_on_definition));
}

}  // namespace cudaexec::python
