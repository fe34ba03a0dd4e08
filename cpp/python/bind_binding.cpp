// Method.bind(): calls on memory that was chosen once.
#include "python/bind_binding.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "python/annotations.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/bindings.h"
#include "python/convert_in.h"
#include "python/dlpack_in.h"
#include "python/gil.h"
#include "python/numpy_array.h"
#include "python/streams.h"

namespace cudaexec::python {
namespace {

/// The memory of `object`, which a program will write. Nothing is copied.
Tensor writable_tensor(PyObject* object, const std::string& place, Borrowed& borrowed) {
  const TypeInfo& info = type_info(object);
  borrowed.keep(object);
  borrowed.note(info);
  std::optional<Tensor> tensor;
  bool copied = false;
  switch (info.source) {
    case Source::kNumpyArray: {
      py::object copy;
      tensor = tensor_from_array(object, copy);
      copied = static_cast<bool>(copy);
      const auto flags = py::reinterpret_borrow<py::object>(object).attr("flags");
      if (!flags.attr("writeable").cast<bool>()) {
        throw InputError(place + " is a read-only array; pass one that can be written");
      }
      break;
    }
    case Source::kExchangeApi:
      tensor = tensor_from_exchange_api(object, info, borrowed);
      break;
    case Source::kTensor:
      tensor = tensor_of(object);
      if (!tensor->device().is_cpu()) borrowed.gpu.add(*tensor->storage());
      break;
    default:
      throw InputError(str(place,
                           ": expected memory that can be written (a numpy array, a torch "
                           "tensor or a cudaexec.Tensor), found ",
                           Py_TYPE(object)->tp_name));
  }
  for (const int64_t stride : tensor->strides()) copied = copied || stride < 0;
  if (copied) {
    throw InputError(place + " has negative or odd strides; pass memory in another layout");
  }
  return std::move(*tensor);
}

std::vector<Value> output_values(const py::object& outputs, const MethodSpec& spec,
                                 Borrowed& borrowed) {
  std::vector<py::object> objects;
  if (py::isinstance<py::tuple>(outputs) || py::isinstance<py::list>(outputs)) {
    for (const py::handle& each : outputs) {
      objects.push_back(py::reinterpret_borrow<py::object>(each));
    }
  } else {
    objects.push_back(outputs);
  }
  std::vector<Value> values;
  for (size_t i = 0; i < objects.size(); ++i) {
    if (objects[i].is_none()) {
      values.emplace_back();
    } else {
      const std::string place = str("method '", spec.name, "': bind: output ", i);
      try {
        values.emplace_back(writable_tensor(objects[i].ptr(), place, borrowed));
      } catch (const Error& error) {
        if (std::string_view(error.what()).starts_with(place)) throw;
        throw Error(error.kind(), str(place, ": ", error.what()));
      }
    }
  }
  return values;
}

}  // namespace

PyBinding::PyBinding(const PyMethod& method, const CallArguments& arguments,
                     const py::object& outputs)
    : device_(method.device()),
      stream_place_(str("method '", method.spec().name, "': Binding.run: stream")) {
  borrowed_.gpu.set_call(device_, std::nullopt);
  ObjectSlots leaves(method.signature().num_leaves());
  method.signature().flatten_into(arguments, leaves.span(), borrowed_);
  std::vector<Value> inputs;
  for (size_t i = 0; i < leaves.span().size(); ++i) {
    inputs.push_back(value_from_object(leaves.span()[i], method.spec(), i, borrowed_));
  }
  std::vector<Value> places = output_values(outputs, method.spec(), borrowed_);
  on_gpu_ = borrowed_.gpu.any();
  if (on_gpu_) borrowed_.gpu.wait();  // what makes the memory; later work is ordered by run()
  binding_ =
      without_gil([&] { return method.method().bind(std::move(inputs), std::move(places)); });
}

PyBinding::~PyBinding() {
  without_gil([this] { binding_.reset(); });
}

void PyBinding::run(const py::object& stream) {
  CallStream order;
  if (!stream.is_none()) {
    order.chosen = stream_from_object(stream.ptr(), device_, stream_place_);
  }
  if (on_gpu_) order.inputs = borrowed_.gpu.stream_now(borrowed_.torch_api);
  without_gil([&] { binding_->run(order); });
  if (has_cleanup_reports()) [[unlikely]]
    warn_of_cleanup_failures();
}

void register_binding(py::module_& m) {
  py::class_<PyBinding, std::shared_ptr<PyBinding>>(
      m, "Binding", py::is_final(),
      "Calls of a method on memory that was chosen once; made by Method.bind().\n\n"
      "Threads may share one: its runs follow one another. It uses the module's current weights\n"
      "and, made from a session's method, that session's buffers; once either is closed, run()\n"
      "raises ClosedError. The memory stays the caller's.")
      .def("run", &PyBinding::run, py::arg("stream") = py::none(), py::call_guard<BindingScope>(),
           "Runs the method: reads the inputs as they are now, and writes the outputs.\n\n"
           "stream: as for Method.run_on(). Nothing waits, except for outputs in host memory, "
           "which\n"
           "are there on return; work on the stream of the bound tensors follows the run.\n\n"
           "Raises as a call does; outputs may be partly written then.");
}

}  // namespace cudaexec::python
