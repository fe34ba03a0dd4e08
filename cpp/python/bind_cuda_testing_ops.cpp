// GPU operators' parts of cudaexec._core._testing.cuda: cuBLAS and plans.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/cuda/cublas.h"
#include "ops/cuda/library_search.h"
#include "ops/cuda/matmul_layout.h"
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

}  // namespace

void bind_cuda_ops_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  m.def("column_major", &column_major);
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
