// Attention in `_core._ops`.
#include <pybind11/stl.h>

#include <optional>

#include "ops/attention.h"
#include "python/bind_ops.h"
#include "python/gil.h"

namespace cudaexec::python {

void register_attention_ops(py::module_& m) {
  m.def(
      "attention",
      [](const Tensor& query, const Tensor& key, const Tensor& value, bool causal,
         const Tensor* mask, std::optional<double> scale) {
        return ops::attention(query, key, value, {causal, mask, scale}, ops_context());
      },
      py::arg("query"), py::arg("key"), py::arg("value"), py::kw_only(), py::arg("causal") = false,
      py::arg("mask") = nullptr, py::arg("scale") = py::none(), py::call_guard<GilRelease>());
}

}  // namespace cudaexec::python
