// Elements of a cudaexec.Tensor as lists, and its memory through the buffer protocol.
#include <array>
#include <memory>

#include "base/str.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/device_copy.h"
#include "python/gil.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

const char* buffer_format(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::kBool:
      return "?";
    case Dtype::kUint8:
      return "B";
    case Dtype::kInt8:
      return "b";
    case Dtype::kInt16:
      return "h";
    case Dtype::kInt32:
      return "i";
    case Dtype::kInt64:
      return "q";
    case Dtype::kFloat16:
      return "e";
    case Dtype::kFloat32:
      return "f";
    case Dtype::kFloat64:
      return "d";
    case Dtype::kBfloat16:
      break;
  }
  return nullptr;
}

/// Whether the consumer's contiguity flags allow this layout; sets BufferError if not.
bool layout_allowed(const Py_buffer& view, int flags) noexcept {
  char order = 0;
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) order = 'F';
  if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS) order = 'A';
  if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) order = 'C';
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) order = 'C';
  if (order == 0 || PyBuffer_IsContiguous(&view, order) != 0) return true;
  PyErr_SetString(PyExc_BufferError,
                  "the tensor's strides do not fit a contiguous buffer; use .numpy().copy()");
  return false;
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  try {
    view->obj = nullptr;
    const Tensor& tensor = tensor_of(object);
    const char* format = buffer_format(tensor.dtype());
    if (format == nullptr || !tensor.device().is_cpu()) {
      PyErr_SetString(PyExc_BufferError,
                      format == nullptr
                          ? "bfloat16 has no buffer format; use .numpy() (with ml_dtypes) or DLPack"
                          : "the tensor is not in host memory; use .to_host()");
      return -1;
    }
    static char no_elements = 0;
    const auto itemsize = static_cast<Py_ssize_t>(tensor.itemsize());
    auto strides = std::make_unique<Dims>(tensor.strides());
    for (int64_t& stride : *strides) stride *= itemsize;
    view->buf = tensor.data() != nullptr ? tensor.data() : &no_elements;
    view->len = static_cast<Py_ssize_t>(tensor.nbytes());
    view->readonly = 0;
    view->itemsize = itemsize;
    view->format = const_cast<char*>(format);
    view->ndim = static_cast<int>(tensor.dim());
    view->shape = const_cast<Py_ssize_t*>(tensor.sizes().data());
    view->strides = strides->data();
    view->suboffsets = nullptr;
    view->internal = nullptr;
    if (!layout_allowed(*view, flags)) return -1;
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) view->format = nullptr;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = nullptr;
    if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = nullptr;
    view->internal = strides.release();
    view->obj = object;
    Py_INCREF(object);
    return 0;
  } catch (...) {
    set_python_error_from_current_exception();
    return -1;
  }
}

void release_buffer(PyObject* /*object*/, Py_buffer* view) {
  const std::unique_ptr<Dims> strides(static_cast<Dims*>(view->internal));
  view->internal = nullptr;
}

template <typename T>
py::object nested(const T*& next, const Dims& sizes, size_t dim, PyObject* (*make)(T)) {
  if (dim == sizes.size()) {
    auto number = py::reinterpret_steal<py::object>(make(*next++));
    if (!number) throw py::error_already_set();
    return number;
  }
  py::list items(static_cast<size_t>(sizes[dim]));
  for (size_t i = 0; i < items.size(); ++i) {
    PyList_SET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i),
                    nested(next, sizes, dim + 1, make).release().ptr());
  }
  return items;
}

/// Lists of the elements, converted to T (of dtype `wide`) and then by `make`.
template <typename T>
py::object list_as(const Tensor& tensor, Dtype wide, PyObject* (*make)(T)) {
  const Tensor packed = Tensor::empty(tensor.sizes(), wide, Device{}, cpu_allocator(), StreamRef{});
  if (packed.numel() > 0) strided_convert(packed, tensor);
  const T* next = packed.data_as<const T>();
  return nested(next, packed.sizes(), 0, make);
}

}  // namespace

void set_buffer_protocol(PyHeapTypeObject* type) noexcept {
  type->as_buffer.bf_getbuffer = get_buffer;
  type->as_buffer.bf_releasebuffer = release_buffer;
  type->ht_type.tp_as_buffer = &type->as_buffer;
}

py::object tensor_to_list(const Tensor& source) {
  const Tensor tensor =
      source.device().is_cpu() ? source : without_gil([&] { return copy_to_host(source); });
  if (tensor.dtype() == Dtype::kBool) {
    return list_as<bool>(tensor, Dtype::kBool, [](bool value) { return PyBool_FromLong(value); });
  }
  if (is_floating_point(tensor.dtype())) {
    return list_as<double>(tensor, Dtype::kFloat64, PyFloat_FromDouble);
  }
  return list_as<int64_t>(tensor, Dtype::kInt64,
                          [](int64_t value) { return PyLong_FromLongLong(value); });
}

}  // namespace cudaexec::python
