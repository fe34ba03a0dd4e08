// What programs on GPUs share and what they leave, for the tests.
#include <pybind11/stl.h>

#include <tuple>
#include <vector>

#include "python/bind_cuda_testing.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "runtime/weight_cache.h"
#include "runtime/weight_upload.h"
#include "runtime/working_memory.h"

namespace cudaexec::python {
namespace {

void upload_pieces(int index, const std::vector<std::tuple<uintptr_t, uintptr_t, size_t>>& pieces) {
  std::vector<Upload> uploads;
  for (const auto& [dst, src, nbytes] : pieces) {
    uploads.push_back({pointer(dst), {static_cast<const std::byte*>(pointer(src)), nbytes}});
  }
  CudaDevice& device = cuda_device(index);
  upload(device, uploads, device.thread_stream());
}

}  // namespace

void bind_cuda_program_testing(py::module_& m) {
  m.def("shared_weight_count", &shared_weight_count);
  m.def("live_working_memory", &WorkingMemory::live_count);
  m.def("upload", &upload_pieces, py::call_guard<GilRelease>(),
        "Copies (dst, src, nbytes) to the GPU, as weights are.");
}

}  // namespace cudaexec::python
