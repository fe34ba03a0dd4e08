#include "python/method_call.h"

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "python/bind_errors.h"
#include "python/convert_out.h"
#include "python/gil.h"

namespace cudaexec::python {

PyMethod::PyMethod(std::shared_ptr<Method> method)
    : method_(std::move(method)), signature_(method_->spec()), out_tree_(method_->spec().out_tree) {
  const MethodSpec& spec = method_->spec();
  if (out_tree_.num_leaves != spec.outputs.size()) {
    throw FormatError(str("method '", spec.name, "': the structure of its outputs has ",
                          out_tree_.num_leaves, " leaves, but it has ", spec.outputs.size(),
                          " outputs; the file is damaged"));
  }
}

PyMethod::~PyMethod() {
  without_gil([this] { method_.reset(); });
}

py::object PyMethod::call(const CallArguments& arguments) const {
  Borrowed borrowed;
  const size_t count = signature_.num_leaves();
  ObjectSlots leaves(count);
  signature_.flatten_into(arguments, leaves.span(), borrowed);

  std::vector<Value> inputs;
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    inputs.push_back(value_from_object(leaves.span()[i], method_->spec(), i, borrowed));
  }
  std::vector<Value> outputs = without_gil([&] { return method_->call(inputs, CallStream{}); });

  if (out_tree_.is_leaf()) return object_from_value(std::move(outputs[0]), borrowed);
  std::vector<py::object> objects;
  objects.reserve(outputs.size());
  for (Value& output : outputs) objects.push_back(object_from_value(std::move(output), borrowed));
  return unflatten(out_tree_, objects);
}

PyObject* fastcall(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                   PyObject* names) {
  try {
    return method.call({args, static_cast<size_t>(count), names}).release().ptr();
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

PyObject* slot_call(const PyMethod& method, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t positional = PyTuple_GET_SIZE(args);
  if (kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0) {
    return fastcall(method, PySequence_Fast_ITEMS(args), positional, nullptr);
  }
  try {
    std::vector<PyObject*> values(PySequence_Fast_ITEMS(args),
                                  PySequence_Fast_ITEMS(args) + positional);
    const auto keywords = py::reinterpret_borrow<py::dict>(kwargs);
    py::tuple names(keywords.size());
    Py_ssize_t next = 0;
    for (const auto& [name, value] : keywords) {
      PyTuple_SET_ITEM(names.ptr(), next++,
                       py::object(py::reinterpret_borrow<py::object>(name)).release().ptr());
      values.push_back(value.ptr());
    }
    return fastcall(method, values.data(), positional, names.ptr());
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

}  // namespace cudaexec::python
