// A method on a GPU without a program, and tensors on GPUs, for the tests of the binding.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "memory/cuda_pool_allocator.h"
#include "python/bind_cuda_testing.h"
#include "python/bind_tensor.h"
#include "python/convert_in.h"
#include "python/device_copy.h"
#include "python/gil.h"
#include "python/held_inputs.h"
#include "python/method_call.h"
#include "python/streams.h"
#include "runtime/gpu_call.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

CallStream last_stream;  // of the last call of an echo method

Tensor to_device(const Tensor& source, CudaDevice& device, StreamRef stream) {
  const Tensor packed = contiguous_copy(source, cpu_allocator(), {});
  Tensor target = Tensor::empty(packed.sizes(), packed.dtype(), device.device(),
                                cuda_allocator(device.index()), stream);
  device.copy(target.data(), device.device(), packed.data(), Device{}, packed.nbytes(), stream);
  return target;
}

/// Returns copies of its tensor inputs, made on the call's stream as a program would make them.
class CudaEchoMethod final : public Method {
 public:
  CudaEchoMethod(MethodSpec spec, int index) : spec_(std::move(spec)), index_(index) {}

  const MethodSpec& spec() const noexcept override { return spec_; }
  Device device() const noexcept override { return {DeviceType::kCuda, index_}; }

  void call(std::span<Value> inputs, const CallStream& stream,
            std::vector<Value>& outputs) override {
    outputs.clear();
    last_stream = stream;
    for (const Value& input : inputs) check(std::get<Tensor>(input));
    GpuCall gpu(cuda_device(index_), stream, inputs);
    for (const Value& input : inputs) {
      const auto& tensor = std::get<Tensor>(input);
      outputs.emplace_back(tensor.device().is_cpu() ? to_device(tensor, gpu.device(), gpu.stream())
                                                    : copy_on_device(tensor, gpu.stream()));
    }
    for (Value& output : outputs) {
      if (gpu.host_only()) output = copy_to_host(std::get<Tensor>(output));
    }
    gpu.finish();
  }

 private:
  void check(const Tensor& tensor) const {
    if (tensor.device().is_cpu() || tensor.device() == device()) return;
    throw DeviceError(str("method '", spec_.name, "': expected ", to_string(device()), ", found ",
                          to_string(tensor.device())));
  }

  MethodSpec spec_;
  int index_;
};

std::shared_ptr<PyMethod> echo_method(const std::string& manifest, int index) {
  Manifest parsed = parse_manifest(manifest, "<test>");
  return std::make_shared<PyMethod>(
      std::make_shared<CudaEchoMethod>(std::move(parsed.methods.at(0)), index));
}

py::object number_or_none(const std::optional<StreamRef>& stream) {
  return stream ? py::object(py::int_(number_from_stream(*stream))) : py::object(py::none());
}

/// A tensor on a GPU whose memory is ordered on `stream` (1: legacy default), copied from `array`.
py::object tensor_on(const py::object& array, int index, uintptr_t stream) {
  Borrowed borrowed;
  const Tensor source = tensor_from_object(array.ptr(), borrowed);
  const StreamRef order = stream_from_number(stream);
  return make_tensor(without_gil([&] { return to_device(source, cuda_device(index), order); }));
}

/// Another view of the tensor's memory.
py::object view_of(const py::object& object, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides, int64_t offset) {
  return make_tensor(tensor_of(object.ptr()).view(sizes, strides, offset));
}

}  // namespace

void bind_cuda_echo_testing(py::module_& m) {
  m.def("echo_method", &echo_method, py::arg("manifest"), py::arg("index") = 0,
        "The first method of a manifest on a GPU, running no code: output k is tensor input k.");
  m.def("last_call", [] {
    return py::make_tuple(number_or_none(last_stream.chosen), number_or_none(last_stream.inputs));
  });
  m.def("tensor_on", &tensor_on, py::arg("array"), py::arg("index") = 0, py::arg("stream") = 1);
  m.def("view_of", &view_of, py::arg("tensor"), py::arg("sizes"), py::arg("strides"),
        py::arg("offset") = 0);
  m.def("held_count", &held_count, "Calls whose inputs are kept until the GPU has read them.");
  m.def("release_finished", &release_finished);
  m.def("wait_and_release_held", &wait_and_release_held);
}

}  // namespace cudaexec::python
