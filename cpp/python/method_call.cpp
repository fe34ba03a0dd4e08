#include "python/method_call.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "python/bind_errors.h"
#include "python/convert_out.h"
#include "python/gil.h"
#include "python/streams.h"

namespace cudaexec::python {

void CallScratch::clear() noexcept {
  objects.clear();
  outputs.clear();
  inputs.clear();
  borrowed.release();
}

/// One of the method's scratches, lent to a call. With the GIL.
class PyMethod::Scratch {
 public:
  explicit Scratch(const PyMethod& method) : method_(method) {
    if (!method.idle_.empty()) {
      scratch_ = std::move(method.idle_.back());
      method.idle_.pop_back();
      return;
    }
    scratch_ = std::make_unique<CallScratch>();
    method.idle_.reserve(method.num_scratches_ + 1);
    ++method.num_scratches_;
  }
  ~Scratch() {
    scratch_->clear();
    method_.idle_.push_back(std::move(scratch_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  CallScratch* operator->() const noexcept { return scratch_.get(); }

 private:
  const PyMethod& method_;
  std::unique_ptr<CallScratch> scratch_;
};

PyMethod::PyMethod(std::shared_ptr<Method> method)
    : method_(std::move(method)),
      device_(method_->device()),
      signature_(method_->spec()),
      out_tree_(method_->spec().out_tree),
      stream_place_(str("method '", method_->spec().name, "': stream")) {
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
  const Scratch scratch(*this);
  Borrowed& borrowed = scratch->borrowed;
  std::optional<StreamRef> chosen;
  if (stream != nullptr) chosen = stream_from_object(stream, device_, stream_place_);
  borrowed.gpu.set_call(device_, chosen);
  const size_t count = signature_.num_leaves();
  ObjectSlots leaves(count);
  signature_.flatten_into(arguments, leaves.span(), borrowed);

  std::vector<Value>& inputs = scratch->inputs;
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    inputs.push_back(value_from_object(leaves.span()[i], method_->spec(), i, borrowed));
  }
  CallStream order{chosen, std::nullopt};
  const bool on_gpu = borrowed.gpu.any();
  if (on_gpu) order = borrowed.gpu.prepare(borrowed.torch_api);
  std::vector<Value>& outputs = scratch->outputs;
  without_gil([&] {
    if (on_gpu) borrowed.gpu.order_before();
    method_->call(inputs, order, outputs);
  });
  if (has_cleanup_reports()) [[unlikely]]
    warn_of_cleanup_failures();
  if (stream != nullptr && stream != Py_None) [[unlikely]] {
    for (Value& output : outputs) {
      if (auto* tensor = std::get_if<Tensor>(&output)) *tensor = kept_with_stream(*tensor, stream);
    }
  }

  if (out_tree_.is_leaf()) return object_from_value(std::move(outputs[0]), borrowed);
  std::vector<py::object>& objects = scratch->objects;
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
    const auto keywords = py::reinterpret_borrow<py::dict>(kwargs);
    ObjectSlots slots(static_cast<size_t>(positional) + keywords.size());
    const std::span<PyObject*> values = slots.span();
    std::copy_n(PySequence_Fast_ITEMS(args), positional, values.begin());
    py::tuple names(keywords.size());
    Py_ssize_t next = 0;
    for (const auto& [name, value] : keywords) {
      values[static_cast<size_t>(positional + next)] = value.ptr();
      PyTuple_SET_ITEM(names.ptr(), next++,
                       py::object(py::reinterpret_borrow<py::object>(name)).release().ptr());
    }
    return fastcall(method, values.data(), positional, names.ptr());
  } catch (...) {
    set_python_error_from_current_exception();
    return nullptr;
  }
}

}  // namespace cudaexec::python
