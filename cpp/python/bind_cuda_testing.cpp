// cudaexec._core._testing.cuda: the GPU device layer by itself, for tests with the fake driver and
// on real GPUs. Addresses and streams are ints; device -1 is the CPU.
#include "python/bind_cuda_testing.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/driver.h"
#include "device/cuda/pointer_info.h"
#include "device/cuda/stream.h"
#include "memory/cuda_pool_allocator.h"
#include "ops/cuda/cublas.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "python/held_inputs.h"

namespace cudaexec::python {
namespace {

void use_driver(const std::string& path) {
  wait_and_release_held();
  const GilRelease release;
  gpu::reset_cublas();
  reset_cuda_allocators();
  reset_cuda_devices();
  cuda::set_driver_library(path);
}

py::dict facts(int index) {
  const CudaFacts& facts = cuda_device(index).facts();
  py::dict result;
  result["name"] = facts.name;
  result["uuid"] = facts.uuid;
  result["sm"] = facts.sm;
  result["sm_count"] = facts.sm_count;
  result["total_nbytes"] = facts.total_nbytes;
  result["l2_nbytes"] = facts.l2_nbytes;
  result["max_shared_nbytes"] = facts.max_shared_nbytes;
  result["virtual_memory"] = facts.virtual_memory;
  result["memory_pools"] = facts.memory_pools;
  result["integrated"] = facts.integrated;
  return result;
}

Device device_from(int index) { return index < 0 ? Device{} : Device{DeviceType::kCuda, index}; }

void copy(int index, uintptr_t dst, int dst_device, uintptr_t src, int src_device, size_t nbytes,
          uintptr_t stream) {
  cuda_device(index).copy(pointer(dst), device_from(dst_device), pointer(src),
                          device_from(src_device), nbytes, stream_ref(stream));
}

std::pair<std::string, int> describe_pointer(uintptr_t data) {
  const PointerInfo info = pointer_info(pointer(data));
  constexpr const char* kNames[] = {"pageable", "pinned", "device", "managed"};
  return {kNames[static_cast<size_t>(info.kind)], info.device_index};
}

std::optional<int> device_of_stream(uintptr_t stream) {
  const CudaDevice* device = cuda_device_of_stream(stream_ref(stream));
  if (device == nullptr) return std::nullopt;
  return device->index();
}

py::object guarded(int index, const py::function& body) {
  const CudaGuard guard(cuda_device(index));
  return body();
}

void bind_streams(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::class_<CudaStream>(m, "Stream", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](int index) {
        return without_gil([&] { return std::make_unique<CudaStream>(cuda_device(index)); });
      }))
      .def_property_readonly("handle", [](const CudaStream& s) { return address(s.ref()); })
      .def("synchronize", &CudaStream::synchronize, no_gil);
  py::class_<CudaEvent>(m, "Event", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](int index, bool timing) {
             const auto kind = timing ? CudaEvent::Timing::kOn : CudaEvent::Timing::kOff;
             return without_gil(
                 [&] { return std::make_unique<CudaEvent>(cuda_device(index), kind); });
           }),
           py::arg("index"), py::arg("timing") = false)
      .def(
          "record", [](CudaEvent& e, uintptr_t stream) { e.record(stream_ref(stream)); }, no_gil)
      .def(
          "make_wait",
          [](const CudaEvent& e, int index, uintptr_t stream) {
            e.make_wait(cuda_device(index), stream_ref(stream));
          },
          no_gil)
      .def("is_done", &CudaEvent::is_done, no_gil)
      .def("synchronize", &CudaEvent::synchronize, no_gil)
      .def("milliseconds_since", &CudaEvent::milliseconds_since, no_gil);
}

void bind_devices(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  m.def(
      "use_driver", &use_driver,
      "Forgets every device and opens this library as the driver from now on; '' is the real one.");
  m.def("problem", &cuda::driver_problem, no_gil, "Why there is no GPU to use, or None.");
  m.def("initialised", [] { return cuda::driver_if_initialised() != nullptr; });
  m.def("device_count", &cuda_device_count, no_gil);
  m.def("facts", &facts);
  m.def(
      "context",
      [](int index) { return reinterpret_cast<uintptr_t>(cuda_device(index).context()); }, no_gil);
  m.def(
      "has_context", [](int index) { return cuda_device(index).context_if_retained() != nullptr; },
      no_gil);
  m.def("copy", &copy, no_gil);
  m.def(
      "zero",
      [](int index, uintptr_t dst, size_t nbytes, uintptr_t stream) {
        cuda_device(index).zero(pointer(dst), nbytes, stream_ref(stream));
      },
      no_gil);
  m.def(
      "synchronize",
      [](int index, uintptr_t stream) { cuda_device(index).synchronize(stream_ref(stream)); },
      no_gil);
  m.def("synchronize_all", [](int index) { cuda_device(index).synchronize_all(); }, no_gil);
  m.def(
      "order",
      [](int later_index, uintptr_t later, int earlier_index, uintptr_t earlier) {
        cuda_device(later_index)
            .order(stream_ref(later), stream_ref(earlier), cuda_device(earlier_index));
      },
      no_gil);
  m.def(
      "thread_stream", [](int index) { return address(cuda_device(index).thread_stream()); },
      no_gil);
  m.def(
      "is_capturing",
      [](int index, uintptr_t stream) {
        return cuda_device(index).is_capturing(stream_ref(stream));
      },
      no_gil);
  m.def("free_nbytes", [](int index) { return cuda_device(index).free_nbytes(); }, no_gil);
  m.def("pointer_info", &describe_pointer, no_gil);
  m.def("device_of_stream", &device_of_stream, no_gil);
  m.def("guarded", &guarded, "Calls body() with the device current.");
}

std::pair<std::vector<std::string>, size_t> cleanup_reports() {
  CleanupReports reports = take_cleanup_reports();
  return {std::move(reports.messages), reports.dropped};
}

}  // namespace

void register_cuda_testing(py::module_& m) {
  py::module_ testing = m.def_submodule("_testing");  // the one there is, or a new one
  testing.def("cleanup_reports", &cleanup_reports,
              "Failures of destructors since the last call, and how many more there were.");
  py::module_ cuda = testing.def_submodule("cuda", "The GPU device layer by itself.");
  bind_devices(cuda);
  bind_streams(cuda);
  bind_cuda_memory_testing(cuda);
  bind_cuda_code_testing(cuda);
  bind_cuda_ops_testing(cuda);
  bind_cuda_echo_testing(cuda);
  bind_cuda_program_testing(cuda);
}

}  // namespace cudaexec::python
