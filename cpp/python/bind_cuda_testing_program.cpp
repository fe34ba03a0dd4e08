// Programs of cudaexec._core._testing.cuda: calls with tensors at given addresses, on given
// streams.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "python/bind_cuda_testing.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "runtime/module.h"
#include "runtime/stream_uses.h"
#include "runtime/weight_cache.h"
#include "runtime/weight_upload.h"
#include "runtime/working_memory.h"

namespace cudaexec::python {
namespace {

/// Device index (-1: host), address, dtype, sizes, strides, stream that the bytes are ordered on.
using Plain =
    std::tuple<int, uintptr_t, std::string, std::vector<int64_t>, std::vector<int64_t>, uintptr_t>;

Tensor from_plain(const Plain& plain) {
  const auto& [index, data, name, sizes, strides, stream] = plain;
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw InputError("no such dtype");
  const Device device = index < 0 ? Device{} : Device{DeviceType::kCuda, index};
  const auto nbytes = static_cast<size_t>(extent(sizes, strides)) * dtype_size(*dtype);
  return {Storage::borrow(pointer(data), nbytes, device, nullptr, stream_ref(stream)), 0,
          Dims(sizes), Dims(strides), *dtype};
}

/// A tensor of a call; keeps its memory.
struct Output {
  Tensor tensor;
  [[nodiscard]] Plain plain() const {
    const Device device = tensor.device();
    const auto list = [](const Dims& dims) {
      return std::vector<int64_t>(dims.begin(), dims.end());
    };
    return {device.is_cpu() ? -1 : device.index,
            address(StreamRef(tensor.data())),
            dtype_name(tensor.dtype()),
            list(tensor.sizes()),
            list(tensor.strides()),
            address(tensor.storage()->stream())};
  }
};

std::optional<StreamRef> stream_of(std::optional<uintptr_t> handle) {
  if (!handle) return std::nullopt;
  return stream_ref(*handle);
}

/// `inputs`: Plain tensors, Outputs of earlier calls, ints. Gives Outputs and numbers.
py::list call(Module& module, const std::string& name,
              const std::vector<std::variant<int64_t, Output*, Plain>>& inputs,
              std::optional<uintptr_t> chosen, std::optional<uintptr_t> stream) {
  std::vector<Value> values;
  for (const auto& input : inputs) {
    if (const auto* number = std::get_if<int64_t>(&input)) {
      values.emplace_back(*number);
    } else if (const auto* output = std::get_if<Output*>(&input)) {
      values.emplace_back((*output)->tensor);
    } else {
      values.emplace_back(from_plain(std::get<Plain>(input)));
    }
  }
  std::vector<Value> outputs = without_gil(
      [&] { return module.method(name)->call(values, {stream_of(chosen), stream_of(stream)}); });
  py::list results;
  for (Value& value : outputs) {
    if (auto* tensor = std::get_if<Tensor>(&value)) {
      results.append(Output{std::move(*tensor)});
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      results.append(*number);
    } else {
      results.append(py::none());
    }
  }
  return results;
}

}  // namespace

void bind_cuda_program_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::class_<Output>(m, "Output", py::release_gil_before_calling_cpp_dtor())
      .def_property_readonly("plain", &Output::plain);
  py::class_<Module, std::shared_ptr<Module>>(m, "Program",
                                              py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const std::string& pte, const std::string& device, size_t memory_limit) {
             LoadOptions options;
             options.memory_limit = memory_limit;
             return Module::load(pte, "", device, options);
           }),
           py::arg("pte"), py::arg("device") = "", py::arg("memory_limit") = 0, no_gil)
      .def("call", &call, py::arg("method"), py::arg("inputs"), py::arg("chosen") = py::none(),
           py::arg("stream") = py::none())
      .def("close", &Module::close, no_gil)
      .def("trim", &Module::trim, no_gil)
      .def("describe", &Module::describe_json, no_gil);
  m.def("shared_weight_count", &shared_weight_count);
  m.def("live_working_memory", &WorkingMemory::live_count);
  m.def(
      "upload",
      [](int index, const std::vector<std::tuple<uintptr_t, uintptr_t, size_t>>& pieces) {
        std::vector<Upload> uploads;
        for (const auto& [dst, src, nbytes] : pieces) {
          uploads.push_back({pointer(dst), {static_cast<const std::byte*>(pointer(src)), nbytes}});
        }
        CudaDevice& device = cuda_device(index);
        upload(device, uploads, device.thread_stream());
      },
      "Copies (dst, src, nbytes) to the GPU, as weights are.", no_gil);
}

}  // namespace cudaexec::python
