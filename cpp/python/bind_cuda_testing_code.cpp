// GPU code of cudaexec._core._testing.cuda: module registry, generated calls, our images.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/device_kernels.h"
#include "device/cuda/generated_call.h"
#include "device/cuda/module_tracker.h"
#include "python/bind_cuda_testing.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

/// Calls body() as generated code is called; then throws the driver failure it noted, if any.
void generated_call(int index, cuda::ModuleTracker& modules, const py::function& body) {
  GeneratedCall call(cuda_device(index), modules);
  body();
  call.rethrow_if_failed();
}

std::vector<std::string> image_names() {
  std::vector<std::string> names;
  for (const DeviceImage& image : device_images()) names.emplace_back(image.name);
  return names;
}

}  // namespace

void bind_cuda_code_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::class_<cuda::ModuleRegistry, std::shared_ptr<cuda::ModuleRegistry>>(
      m, "ModuleRegistry", py::release_gil_before_calling_cpp_dtor())
      .def(py::init<>())
      .def_property_readonly("module_count", &cuda::ModuleRegistry::module_count);
  py::class_<cuda::ModuleTracker>(m, "ModuleTracker", py::release_gil_before_calling_cpp_dtor())
      .def(py::init<std::shared_ptr<cuda::ModuleRegistry>>());
  m.def("live_modules", &cuda::live_modules);
  m.def("generated_call", &generated_call);
  m.def("image_names", &image_names);
  m.def(
      "kernel",
      [](int index, const std::string& image, const std::string& name) {
        CudaDevice& device = cuda_device(index);
        return reinterpret_cast<uintptr_t>(
            device.kernels().get(device, image.c_str(), name.c_str()));
      },
      no_gil);
}

}  // namespace cudaexec::python
