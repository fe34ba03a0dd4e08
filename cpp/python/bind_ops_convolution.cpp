// Convolution in `_core._ops`.
#include <pybind11/stl.h>

#include <vector>

#include "ops/convolution.h"
#include "ops/convolution_engine.h"
#include "ops/onednn_loader.h"
#include "python/bind_ops.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

using Numbers = std::vector<int64_t>;

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                   const Numbers& stride, const Numbers& padding, const Numbers& dilation,
                   bool transposed, const Numbers& output_padding, int64_t groups,
                   const char* engine) {
  const ops::ConvolutionOptions options{stride,     padding,        dilation,
                                        transposed, output_padding, groups};
  return ops::convolution_by(ops::convolution_engine(engine), input, weight, bias, options,
                             ops_context());
}

int64_t cached_primitives() {
  const ops::OnednnFunctions* functions = ops::onednn_functions();
  return functions != nullptr ? functions->cached_primitives() : 0;
}

}  // namespace

void register_convolution_ops(py::module_& m) {
  m.def("convolution", &convolution, py::arg("input"), py::arg("weight"), py::arg("bias") = nullptr,
        py::kw_only(), py::arg("stride") = Numbers{1}, py::arg("padding") = Numbers{0},
        py::arg("dilation") = Numbers{1}, py::arg("transposed") = false,
        py::arg("output_padding") = Numbers{0}, py::arg("groups") = 1, py::arg("engine") = "best",
        py::call_guard<GilRelease>(),
        "`engine`: best, matrix (of pointwise kernels alone), onednn or gathered.");
  m.def("has_onednn", [] { return ops::onednn_functions() != nullptr; });
  m.def("cached_primitives", &cached_primitives);
}

}  // namespace cudaexec::python
