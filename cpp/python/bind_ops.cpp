// `_core._ops`: the Array that operators take and return here, over the buffer protocol alone.
#include "python/bind_ops.h"

#include <pybind11/stl.h>

#include "base/error.h"
#include "base/str.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

/// The dtype that a buffer's format stands for; bfloat16 has none and travels as uint16.
Dtype dtype_of(const py::buffer_info& info) {
  const std::string kind = info.format.substr(info.format.find_first_not_of("<=@"));
  if (kind == "f") return Dtype::kFloat32;
  if (kind == "d") return Dtype::kFloat64;
  if (kind == "e") return Dtype::kFloat16;
  if (kind == "?") return Dtype::kBool;
  if (kind == "B" || kind == "H") return kind == "B" ? Dtype::kUint8 : Dtype::kBfloat16;
  if (kind == "b") return Dtype::kInt8;
  if (kind == "h") return Dtype::kInt16;
  if (kind == "i") return Dtype::kInt32;
  if (kind == "l" || kind == "q") return Dtype::kInt64;
  throw DtypeError(str("a buffer of format '", info.format, "' has no dtype here"));
}

const char* format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "f";
    case Dtype::kFloat64:
      return "d";
    case Dtype::kFloat16:
      return "e";
    case Dtype::kBool:
      return "?";
    case Dtype::kUint8:
      return "B";
    case Dtype::kBfloat16:
      return "H";
    case Dtype::kInt8:
      return "b";
    case Dtype::kInt16:
      return "h";
    case Dtype::kInt32:
      return "i";
    case Dtype::kInt64:
      return "q";
  }
  throw DtypeError(str("no buffer format for ", dtype_name(dtype)));
}

Tensor from_buffer(const py::buffer& source, bool constant) {
  auto info = std::make_shared<py::buffer_info>(source.request());
  Dims sizes(info->shape.size()), strides(info->shape.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = info->shape[i];
    strides[i] = info->strides[i] / info->itemsize;
  }
  const Dtype dtype = dtype_of(*info);
  void* first = info->ptr;
  const std::shared_ptr<void> owner(info.get(), [info](void*) mutable {
    const py::gil_scoped_acquire gil;
    info.reset();
  });
  Tensor tensor = borrow_strided(first, sizes, strides, dtype, Device{}, owner);
  if (constant) tensor.storage()->mark_constant();
  return tensor;
}

py::buffer_info to_buffer(const Tensor& tensor) {
  const auto itemsize = static_cast<py::ssize_t>(tensor.itemsize());
  std::vector<py::ssize_t> shape(tensor.sizes().begin(), tensor.sizes().end());
  std::vector<py::ssize_t> strides;
  for (const int64_t stride : tensor.strides()) strides.push_back(stride * itemsize);
  return {tensor.data(), itemsize,         format_of(tensor.dtype()),
          tensor.dim(),  std::move(shape), std::move(strides)};
}

}  // namespace

OpContext ops_context() { return {cpu_allocator(), StreamRef()}; }

void register_ops(py::module_& m) {
  py::module_ ops = m.def_submodule("_ops", "Operators of generated code; for tests.");
  py::class_<Tensor>(ops, "Array", py::buffer_protocol())
      .def(py::init(&from_buffer), py::arg("source"), py::kw_only(), py::arg("constant") = false,
           "A view of any buffer's memory with its strides. uint16 stands for bfloat16. A "
           "constant's "
           "packed forms live as long as the Array.")
      .def_buffer(&to_buffer)
      .def(
          "view",
          [](const Tensor& self, const std::vector<int64_t>& sizes,
             const std::vector<int64_t>& strides,
             int64_t offset) { return self.view(sizes, strides, offset); },
          py::arg("sizes"), py::arg("strides"), py::arg("offset") = 0,
          "Another view of the same storage; strides and offset in elements.")
      .def_property_readonly("dtype", [](const Tensor& self) { return dtype_name(self.dtype()); })
      .def_property_readonly("shape",
                             [](const Tensor& self) {
                               return std::vector<int64_t>(self.sizes().begin(),
                                                           self.sizes().end());
                             })
      .def_property_readonly("strides", [](const Tensor& self) {
        return std::vector<int64_t>(self.strides().begin(), self.strides().end());
      });
  register_linear_ops(ops);
  register_convolution_ops(ops);
  register_attention_ops(ops);
}

}  // namespace cudaexec::python
