#include "python/convert_out.h"

#include <utility>

#include "base/error.h"
#include "python/bind_tensor.h"
#include "python/numpy_array.h"
#include "python/streams.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

py::object torch_from_tensor(const Tensor& tensor, const Borrowed& inputs) {
  const dlpack::DLPackExchangeApi* api = inputs.torch_api;
  if (api != nullptr) {
    void* object = nullptr;
    // torch's current stream follows the call already, and frees the memory. The callee takes over
    // the struct, also where it fails.
    const Tensor shared = inputs.gpu.owner() ? used_on(tensor, *inputs.gpu.owner()) : tensor;
    if (api->managed_tensor_to_py_object_no_sync(export_dlpack_versioned(shared, 0), &object) !=
        0) {
      throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
  }
  // A torch tensor was among the inputs, so torch is loaded.
  const py::module_ torch = py::module_::import("torch");
  return torch.attr("from_dlpack")(make_tensor(tensor));
}

}  // namespace

py::object object_from_tensor(Tensor tensor, const Borrowed& inputs) {
  switch (inputs.family) {
    case Family::kTorch:
      return torch_from_tensor(tensor, inputs);
    case Family::kNumpy:
      if (tensor.device().is_cpu() && numpy_has_dtype(tensor.dtype())) {
        return array_from_tensor(tensor);
      }
      break;
    case Family::kCudaexec:
      break;
  }
  return make_tensor(std::move(tensor));
}

py::object object_from_value(Value value, const Borrowed& inputs) {
  if (auto* tensor = std::get_if<Tensor>(&value)) {
    return object_from_tensor(std::move(*tensor), inputs);
  }
  if (const auto* flag = std::get_if<bool>(&value)) return py::bool_(*flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) return py::int_(*integer);
  if (const auto* number = std::get_if<double>(&value)) return py::float_(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return py::str(*text);
  return py::none();
}

}  // namespace cudaexec::python
