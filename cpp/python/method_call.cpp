#include "python/method_call.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "python/bind_errors.h"
#include "python/convert_out.h"
#include "python/gil.h"
#include "python/streams.h"

namespace cudaexec::python {

PyMethod::PyMethod(std::shared_ptr<Method> method)
    : method_(std::move(method)),
      device_(method_->device()),
      signature_(method_->spec()),
      out_tree_(method_->spec().out_tree) {
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

py::object PyMethod::call(const CallArguments& arguments, PyObject* stream) const {
  if (arguments.keywords == nullptr || signature_.has_stream_input()) [[likely]] {
    return run(arguments, stream);
  }
  const StreamKeyword keyword(arguments);
  if (keyword.value() != nullptr && stream != nullptr) {
    throw InputError(str("method '", spec().name, "': the stream was given twice"));
  }
  return run(keyword.rest(), keyword.value() != nullptr ? keyword.value() : stream);
}

void PyMethod::warm_up(const CallArguments& arguments) const {
  for (uint32_t i = 0; i < method_->warmup_calls(); ++i) {
    const std::optional<int64_t> position = method_->position();
    (void)call(arguments);
    if (position) without_gil([&] { method_->rewind(*position); });
  }
}

py::object PyMethod::run(const CallArguments& arguments, PyObject* stream) const {
  Borrowed borrowed;
  std::optional<StreamRef> chosen;
  if (stream != nullptr) {
    chosen = stream_from_object(stream, device_, str("method '", spec().name, "': stream"));
  }
  borrowed.gpu.set_call(device_, chosen);
  const size_t count = signature_.num_leaves();
  ObjectSlots leaves(count);
  signature_.flatten_into(arguments, leaves.span(), borrowed);

  std::vector<Value> inputs;
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    inputs.push_back(value_from_object(leaves.span()[i], method_->spec(), i, borrowed));
  }
  CallStream order{chosen, std::nullopt};
  const bool on_gpu = borrowed.gpu.any();
  if (on_gpu) order = borrowed.gpu.prepare(borrowed.torch_api);
  std::vector<Value> outputs = without_gil([&] {
    if (on_gpu) borrowed.gpu.order_before();
    return method_->call(inputs, order);
  });
  if (has_cleanup_reports()) [[unlikely]]
    warn_of_cleanup_failures();
  if (stream != nullptr && stream != Py_None) [[unlikely]] {
    for (Value& output : outputs) {
      if (auto* tensor = std::get_if<Tensor>(&output)) *tensor = kept_with_stream(*tensor, stream);
    }
  }

  if (out_tree_.is_leaf()) return object_from_value(std::move(outputs[0]), borrowed);
  std::vector<py::object> objects;
  objects.reserve(outputs.size());
  for (Value& output : outputs) objects.push_back(object_from_value(std::move(output), borrowed));
  return unflatten(out_tree_, objects);
}

PyObject* fastcall(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                   PyObject* names) {
  const BindingScope scope;
  try {
    return method.call({args, static_cast<size_t>(count), names}).release().ptr();
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

PyObject* fastcall_on(const PyMethod& method, PyObject* const* args, Py_ssize_t count,
                      PyObject* names) {
  const BindingScope scope;
  try {
    if (count < 1) {
      throw InputError(str("method '", method.spec().name,
                           "': run_on() takes the stream as its first argument"));
    }
    const CallArguments arguments{args + 1, static_cast<size_t>(count - 1), names};
    return method.call(arguments, args[0]).release().ptr();
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
