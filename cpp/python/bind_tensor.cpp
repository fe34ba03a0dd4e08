#include "python/bind_tensor.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/str.h"
#include "python/annotations.h"
#include "python/bindings.h"
#include "python/cuda_array.h"
#include "python/device_copy.h"
#include "python/gil.h"
#include "python/numpy_array.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

using Number = py::typing::Union<py::bool_, py::int_, py::float_>;

PyTypeObject* tensor_type = nullptr;

IntTuple to_tuple(const Dims& dims) {
  IntTuple items(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) items[i] = dims[i];
  return items;
}

py::object dlpack(const TensorObject& self, const py::object& stream,
                  std::optional<std::pair<int64_t, int64_t>> max_version,
                  std::optional<std::pair<int32_t, int32_t>> dl_device, std::optional<bool> copy) {
  return export_dlpack(self.tensor, {stream, max_version, dl_device, copy});
}

TensorResult to_host(const py::object& self) {
  const Tensor tensor = tensor_of(self.ptr());
  if (tensor.device().is_cpu()) return TensorResult(self);
  return TensorResult(make_tensor(without_gil([&] { return copy_to_host(tensor); })));
}

NumpyArray array_protocol(const TensorObject& self, const py::object& dtype,
                          std::optional<bool> copy) {
  const py::object array = array_from_tensor(self.tensor);
  const bool same = dtype.is_none() || py::object(array.attr("dtype")).equal(dtype);
  const bool forbidden = copy == false;
  if (same && (!copy || forbidden)) return NumpyArray(array);
  if (forbidden) {
    throw py::value_error(str("__array__: dtype ", std::string(py::str(dtype)),
                              " needs a copy of the ", dtype_name(self.tensor.dtype()),
                              " tensor, but copy=False"));
  }
  return NumpyArray(array.attr("astype")(same ? array.attr("dtype") : dtype));
}

Number item(const TensorObject& self) {
  if (self.tensor.numel() != 1) {
    throw InputError(str("only a tensor of one element has an item; this one is ",
                         describe(self.tensor), ": use tolist() or numpy()"));
  }
  return tensor_to_list(self.tensor.view({}, {}, self.tensor.offset()));
}

size_t length(const TensorObject& self) {
  if (self.tensor.dim() == 0) throw py::type_error("len() of a tensor without dimensions");
  return static_cast<size_t>(self.tensor.size(0));
}

std::string repr(const TensorObject& self) {
  const Tensor& tensor = self.tensor;
  std::string text = str("cudaexec.Tensor(", describe(tensor));
  if (!tensor.is_contiguous()) text += str(", strides=", list_str(tensor.strides()));
  if (!tensor.device().is_cpu()) text += str(", device=", to_string(tensor.device()));
  if (tensor.device().is_cpu() && tensor.numel() <= 16) {
    text += str(", ", std::string(py::repr(tensor_to_list(tensor))));
  }
  return text + ")";
}

void bind_properties(py::class_<TensorObject>& cls) {
  cls.def_property_readonly(
         "shape", [](const TensorObject& self) { return to_tuple(self.tensor.sizes()); },
         "Sizes, in elements.")
      .def_property_readonly(
          "strides", [](const TensorObject& self) { return to_tuple(self.tensor.strides()); },
          "Distances between neighbours along each dimension, in elements (not bytes).")
      .def_property_readonly(
          "dtype", [](const TensorObject& self) { return dtype_name(self.tensor.dtype()); },
          "Element type by name, such as 'float32' or 'bfloat16'.")
      .def_property_readonly(
          "device", [](const TensorObject& self) { return to_string(self.tensor.device()); },
          "'cpu' or 'cuda:<index>'.")
      .def_property_readonly(
          "nbytes", [](const TensorObject& self) { return self.tensor.nbytes(); },
          "Bytes of the elements if they were packed.")
      .def_property_readonly(
          "ndim", [](const TensorObject& self) { return self.tensor.dim(); },
          "Number of dimensions.");
}

void bind_conversions(py::class_<TensorObject>& cls) {
  cls.def(
         "numpy",
         [](const TensorObject& self) { return NumpyArray(array_from_tensor(self.tensor)); },
         py::call_guard<BindingScope>(),
         "A numpy array over the same memory. bfloat16 needs the package ml_dtypes.\n\n"
         "Raises NotSupported for bfloat16 without ml_dtypes, DeviceError if not on the CPU: use\n"
         "to_host() first.")
      .def("__array__", &array_protocol, py::arg("dtype") = py::none(),
           py::arg("copy") = py::none(), py::call_guard<BindingScope>())
      .def("to_host", &to_host, py::call_guard<BindingScope>(),
           "The tensor in host memory: this object itself if it is there, else a copy.\n\n"
           "Waits for the GPU work that makes it. Raises OutOfMemory.")
      .def("item", &item, "The one element as a Python bool, int or float.")
      .def(
          "tolist", [](const TensorObject& self) { return AnyObject(tensor_to_list(self.tensor)); },
          "Elements as nested lists of bool, int or float.")
      .def("__len__", &length)
      .def("__bool__", [](const TensorObject& self) { return item(self).cast<bool>(); })
      .def("__int__", [](const TensorObject& self) { return py::int_(item(self)); })
      .def("__float__", [](const TensorObject& self) { return py::float_(item(self)); })
      .def("__repr__", &repr);
}

void bind_dlpack(py::class_<TensorObject>& cls) {
  cls.def("__dlpack__", &dlpack, py::kw_only(), py::arg("stream") = py::none(),
          py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
          py::arg("copy") = py::none(),
          "A DLPack capsule that shares the memory, or holds a copy if copy=True.\n\n"
          "stream: for a tensor on a GPU, the consumer's stream, on which the memory is ready: "
          "None or\n"
          "1 for the legacy default stream, 2 for the thread's, a handle, or -1 for no ordering.\n"
          "dl_device: (1, 0) asks for a copy in host memory, which waits for the GPU. Raises\n"
          "BufferError for other devices and where copy=False forbids the copy.")
      .def("__dlpack_device__", [](const TensorObject& self) {
        const dlpack::DLDevice device = device_to_dlpack(self.tensor.device());
        return std::pair(int32_t{device.device_type}, device.device_id);
      });
  cls.def_property_readonly(
      "__cuda_array_interface__",
      [](const TensorObject& self) { return ArraysByName(cuda_array_interface(self.tensor)); },
      "Version 3, with the stream that the memory is ready on; for tensors on a GPU.\n\n"
      "Work of consumers on other streams has to be over before the tensor is dropped.");
  cls.attr("__dlpack_c_exchange_api__") = make_exchange_capsule();
}

}  // namespace

py::object make_tensor(Tensor tensor) {
  return py::cast(std::make_unique<TensorObject>(std::move(tensor)));
}

bool is_tensor_type(PyTypeObject* type) noexcept { return type == tensor_type; }

const Tensor& tensor_of(PyObject* object) { return self_cast<TensorObject>(object).tensor; }

void register_tensor(py::module_& m) {
  py::class_<TensorObject> cls(
      m, "Tensor", py::is_final(), py::custom_type_setup(set_buffer_protocol),
      "A tensor in memory that cudaexec owns: an output of a program, or a weight.\n\n"
      "It takes part in DLPack, in the buffer protocol and numpy's __array__ (host memory) and in\n"
      "__cuda_array_interface__ (GPU memory), all without a copy, and stays valid after its "
      "module\n"
      "is closed.");
  tensor_type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  bind_properties(cls);
  bind_conversions(cls);
  bind_dlpack(cls);
}

}  // namespace cudaexec::python
