#include "python/cuda_array.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "device/cuda/pointer_info.h"
#include "python/bind_errors.h"
#include "python/dlpack_in.h"
#include "python/gil.h"
#include "python/streams.h"
#include "tensor/dlpack.h"

namespace cudaexec::python {
namespace {

constexpr const char* kAttribute = "__cuda_array_interface__";

constexpr std::array<std::pair<Dtype, std::string_view>, 9> kTypes{{
    {Dtype::kBool, "|b1"},
    {Dtype::kUint8, "|u1"},
    {Dtype::kInt8, "|i1"},
    {Dtype::kInt16, "<i2"},
    {Dtype::kInt32, "<i4"},
    {Dtype::kInt64, "<i8"},
    {Dtype::kFloat16, "<f2"},
    {Dtype::kFloat32, "<f4"},
    {Dtype::kFloat64, "<f8"},
}};

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

/// One object's interface; messages name the object and the entry.
class Interface {
 public:
  explicit Interface(PyObject* object) : owner_(type_name(object)) {
    py::object found = py::handle(object).attr(kAttribute);
    if (PyDict_Check(found.ptr()) == 0) fail("is a " + type_name(found.ptr()), "a dict");
    entries_ = py::reinterpret_steal<py::dict>(found.release());
  }

  [[nodiscard]] Dtype dtype() const {
    const std::string text = py::str(required("typestr"));
    std::string_view plain = text;
    if (!plain.empty() && (plain.front() == '<' || plain.front() == '|' || plain.front() == '=')) {
      plain.remove_prefix(1);
    }
    for (const auto& [dtype, name] : kTypes) {
      if (plain == name.substr(1)) return dtype;
    }
    throw DtypeError(str(with_article(owner_), " whose ", kAttribute, " has typestr '", text,
                         "' is not supported; expected one of |b1 |u1 |i1 <i2 <i4 <i8 <f2 <f4 <f8 "
                         "(bfloat16: pass an object with __dlpack__)"));
  }

  [[nodiscard]] Dims numbers(const char* name, const py::object& value) const {
    if (PyTuple_Check(value.ptr()) == 0) fail(name, value, "a tuple of ints");
    Dims dims(static_cast<size_t>(PyTuple_GET_SIZE(value.ptr())));
    for (size_t i = 0; i < dims.size(); ++i) {
      dims[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(value.ptr(), static_cast<Py_ssize_t>(i)));
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        fail(name, value, "a tuple of ints");
      }
    }
    return dims;
  }

  [[nodiscard]] Dims shape() const { return numbers("shape", required("shape")); }

  [[nodiscard]] Dims strides(const Dims& sizes, size_t itemsize) const {
    const py::object value = optional("strides");
    if (value.is_none()) return contiguous_strides(sizes);
    Dims strides = numbers("strides", value);
    if (strides.size() != sizes.size()) fail("strides", value, "one stride (bytes) a dimension");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto size = static_cast<int64_t>(itemsize);
      if (sizes[i] > 1 && strides[i] % size != 0) {
        throw ShapeError(str(with_article(owner_), " whose stride ", strides[i],
                             " (bytes) is no multiple of its item size ", size,
                             "; pass a packed copy"));
      }
      strides[i] /= size;
    }
    return strides;
  }

  [[nodiscard]] void* data() const {
    const py::object value = required("data");
    if (PyTuple_Check(value.ptr()) == 0 || PyTuple_GET_SIZE(value.ptr()) != 2) {
      fail("data", value, "(address, read only)");
    }
    void* address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(value.ptr(), 0));
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      fail("data", value, "(address, read only)");
    }
    return address;
  }

  /// The stream that the memory is ordered on; nothing where its user has seen to that.
  [[nodiscard]] std::optional<StreamRef> stream() const {
    const py::object value = optional("stream");
    if (value.is_none()) return std::nullopt;
    const unsigned long long number =
        PyLong_Check(value.ptr()) != 0 ? PyLong_AsUnsignedLongLong(value.ptr()) : 0;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (number == 0 || number == ~0ULL) {
      fail("stream", value, "None, 1, 2 or the handle of a stream");
    }
    return stream_from_number(number);
  }

  void refuse_mask() const {
    const py::object mask = optional("mask");
    if (!mask.is_none()) fail("mask", mask, "None: masked arrays cannot be used");
  }

 private:
  [[nodiscard]] py::object optional(const char* name) const {
    PyObject* value = PyDict_GetItemString(entries_.ptr(), name);
    return value != nullptr ? py::reinterpret_borrow<py::object>(value) : py::none();
  }
  [[nodiscard]] py::object required(const char* name) const {
    py::object value = optional(name);
    if (value.is_none()) fail(str("has no '", name, "'"), "one");
    return value;
  }
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(
        str("the ", kAttribute, " of ", with_article(owner_), " ", found, "; expected ", expected));
  }
  [[noreturn]] void fail(const char* name, const py::object& value,
                         const std::string& expected) const {
    fail(str("has ", name, " ", std::string(py::repr(value))), expected);
  }

  std::string owner_;
  py::dict entries_;
};

bool has_elements(const Dims& sizes) noexcept {
  return std::find(sizes.begin(), sizes.end(), 0) == sizes.end();
}

/// The GPU of the memory, as the driver tells.
int gpu_of(const void* data, PyObject* object, const GpuInputs& gpu) {
  const PointerInfo info = without_gil([&] { return pointer_info(data); });
  switch (info.kind) {
    case MemoryKind::kDevice:
      return info.device_index;
    case MemoryKind::kManaged:  // serves every GPU
      return gpu.device() ? gpu.device()->index : info.device_index;
    case MemoryKind::kPageable:
    case MemoryKind::kPinned:
      break;
  }
  throw DeviceError(
      str("the ", kAttribute, " of ", with_article(type_name(object)), " has an address of ",
          info.kind == MemoryKind::kPinned ? "pinned host memory" : "host memory", " (", data,
          "); expected memory of a GPU: pass host memory as a numpy "
          "array"));
}

}  // namespace

Tensor tensor_from_cuda_array(PyObject* object, Borrowed& borrowed) {
  GpuInputs& gpu = borrowed.gpu;
  if (gpu.refused()) {
    throw DeviceError(str("the program runs on the cpu, found ", with_article(type_name(object)),
                          " in CUDA memory; copy it to the host first, or load the program for "
                          "the GPU"));
  }
  try {
    const Interface interface(object);
    interface.refuse_mask();
    const Dtype dtype = interface.dtype();
    Dims sizes = interface.shape();
    Dims strides = interface.strides(sizes, dtype_size(dtype));
    void* data = interface.data();
    const std::optional<StreamRef> stream = interface.stream();
    int index = gpu.device() ? gpu.device()->index : 0;
    if (has_elements(sizes)) {
      index = gpu_of(data, object, gpu);
      if (stream) {
        gpu.add_owned(index, *stream, *stream != StreamRef());
      } else {
        gpu.hold(object);
        gpu.add_ready(index, gpu.handover_stream(index));
      }
    }
    return borrow_strided(data, std::move(sizes), std::move(strides), dtype,
                          {DeviceType::kCuda, index}, nullptr, stream.value_or(StreamRef()));
  } catch (py::error_already_set& error) {
    throw_from_python_error(error, ErrorKind::kInput,
                            str(with_article(type_name(object)), " gave no ", kAttribute));
  }
}

py::dict cuda_array_interface(const Tensor& tensor) {
  if (tensor.device().is_cpu()) {
    throw py::attribute_error(str("a cudaexec.Tensor on the cpu has no ", kAttribute));
  }
  for (const auto& [dtype, name] : kTypes) {
    if (dtype != tensor.dtype()) continue;
    py::dict entries;
    py::tuple shape(tensor.sizes().size());
    py::tuple strides(tensor.sizes().size());
    for (size_t i = 0; i < tensor.sizes().size(); ++i) {
      shape[i] = tensor.size(i);
      strides[i] = tensor.stride(i) * static_cast<int64_t>(tensor.itemsize());
    }
    const auto address = tensor.numel() == 0 ? 0 : reinterpret_cast<uintptr_t>(tensor.data());
    entries["shape"] = shape;
    entries["typestr"] = std::string(name);
    entries["data"] = py::make_tuple(address, false);
    entries["version"] = 3;
    entries["strides"] = tensor.is_contiguous() ? py::object(py::none()) : py::object(strides);
    entries["stream"] = number_from_stream(tensor.storage()->stream());
    return entries;
  }
  throw py::attribute_error(str("a cudaexec.Tensor of ", dtype_name(tensor.dtype()), " has no ",
                                kAttribute, ", which knows no such type; use DLPack"));
}

}  // namespace cudaexec::python
