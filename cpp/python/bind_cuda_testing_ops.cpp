// GPU operators' parts of cudaexec._core._testing.cuda: cuBLAS and plans.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "memory/cuda_pool_allocator.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/library_search.h"
#include "ops/cuda/matmul_layout.h"
#include "ops/cuda/random.h"
#include "python/bind_cuda_testing.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

using Reading = std::tuple<int64_t, int64_t, int64_t, bool>;

/// (rows, cols, leading dimension, transposed), or None.
std::optional<Reading> column_major(int64_t rows, int64_t cols, int64_t row_stride,
                                    int64_t col_stride) {
  const auto layout = gpu::column_major({rows, cols, row_stride, col_stride});
  if (!layout) return std::nullopt;
  return Reading{layout->rows, layout->cols, layout->leading, layout->transposed};
}

std::pair<int64_t, int64_t> cublas_counts() {
  const gpu::CublasCounts counts = gpu::cublas_counts();
  return {counts.handles, counts.plans};
}

/// A GraphRandom over the random numbers of the process.
class GraphRandomObject {
 public:
  py::object scope(const py::function& body) {
    const gpu::GraphRandomScope scope(random_);
    return body();
  }
  void advance(int index, uintptr_t exec) {
    CudaDevice& device = cuda_device(index);
    const CudaGuard guard(device);
    random_.advance(RandomState::current(), reinterpret_cast<cuda::CUgraphExec>(exec));
  }
  [[nodiscard]] bool is_used() const { return random_.is_used(); }

 private:
  gpu::GraphRandom random_;
};

}  // namespace

void bind_cuda_ops_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::class_<GraphRandomObject>(m, "GraphRandom", py::release_gil_before_calling_cpp_dtor())
      .def(py::init<>())
      .def("scope", &GraphRandomObject::scope, "Calls body() with it current.")
      .def("advance", &GraphRandomObject::advance, no_gil)
      .def_property_readonly("is_used", &GraphRandomObject::is_used);
  m.def("column_major", &column_major);
  m.def("require_called_libraries",
        [](const std::vector<std::string>& undefined, const std::string& name) {
          gpu::require_called_libraries(undefined, name);
        });
  m.def("require_cublas", &gpu::require_cublas, no_gil, "Opens cuBLAS; its path.");
  m.def("trim_cublas", &gpu::trim_cublas, no_gil);
  m.def("reset_cublas", &gpu::reset_cublas, no_gil);
  m.def("cublas_counts", &cublas_counts, "Handles, and products remembered.");
}

void register_libraries(py::module_& m) {
  m.def("_set_package_folders", &gpu::set_package_folders, py::arg("folders"),
        "Where NVIDIA's optional libraries may be installed as Python packages: sys.path.");
}

}  // namespace cudaexec::python
