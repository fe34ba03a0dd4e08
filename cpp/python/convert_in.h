// Python objects to tensors: numpy arrays, torch tensors (through the table of C functions on their
// type), cudaexec tensors, anything with __dlpack__, DLPack capsules, __cuda_array_interface__ and
// the buffer protocol.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "format/manifest.h"
#include "python/gpu_inputs.h"
#include "runtime/module.h"
#include "tensor/dlpack_abi.h"
#include "tensor/tensor.h"

namespace cudaexec::python {

namespace py = pybind11;

/// Which library's tensors the outputs of a call become; the highest one seen among the inputs.
enum class Family : uint8_t { kCudaexec = 0, kNumpy = 1, kTorch = 2 };

/// Where a Python type keeps its tensor.
enum class Source : uint8_t {
  kNumpyArray,
  kNumpyScalar,
  kTensor,       // ours
  kExchangeApi,  // a table of C functions on the type
  kDlpack,       // __dlpack__
  kCapsule,      // a DLPack capsule itself
  kCudaArray,    // only __cuda_array_interface__
  kBuffer,
  kScalar,  // bool, int, float
  kUnsupported,
};

/// What is known of a Python type; kept for the life of the process, so the address can be
/// compared.
struct TypeInfo {
  PyTypeObject* type = nullptr;
  Source source = Source::kUnsupported;
  Family family = Family::kCudaexec;
  const dlpack::DLPackExchangeApi* api = nullptr;
  PyObject* is_neg = nullptr;  // torch: the method that tells whether a sign is pending
};

/// The entry of `object`'s type, classified on first sight. Valid until the next call.
const TypeInfo& type_info(PyObject* object);

/// What a call's inputs borrow; released, with the GIL held, after the call.
class Borrowed {
 public:
  Borrowed() = default;
  ~Borrowed() { release(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  /// Releases everything; as new, with the room it has, for the next call. With the GIL.
  void release() noexcept;

  /// Keeps an object alive.
  void keep(PyObject* object) {
    objects_.push_back(object);
    Py_INCREF(object);
  }
  void keep(dlpack::DLManagedTensor* tensor) { legacy_.push_back(tensor); }
  void keep(dlpack::DLManagedTensorVersioned* tensor) { versioned_.push_back(tensor); }
  /// A buffer to release; its address is stable.
  Py_buffer& add_buffer();
  void drop_last_buffer() noexcept { buffers_.pop_back(); }

  /// Notes the library and, for torch, the table that makes its tensors.
  void note(const TypeInfo& info) noexcept {
    if (info.family > family) family = info.family;
    if (info.family == Family::kTorch && info.api != nullptr) torch_api = info.api;
  }

  Family family = Family::kCudaexec;
  const dlpack::DLPackExchangeApi* torch_api = nullptr;
  GpuInputs gpu;

 private:
  std::vector<PyObject*> objects_;
  std::vector<dlpack::DLManagedTensor*> legacy_;
  std::vector<dlpack::DLManagedTensorVersioned*> versioned_;
  std::vector<std::unique_ptr<Py_buffer>> buffers_;
};

/// A view of `object`'s elements that is valid as long as `borrowed`. Nothing is cast or copied,
/// except arrays with negative strides, or whose elements lie at distances that are no multiple of
/// their size. Memory of a GPU is never read as host memory.
/// @throws InputError, DtypeError, ShapeError, DeviceError.
Tensor tensor_from_object(PyObject* object, Borrowed& borrowed);

/// The value of the flat input `index`: a tensor for tensor inputs (a Python number serves for one
/// without dimensions), a scalar for inputs that were compiled in. Errors name method and input.
Value value_from_object(PyObject* object, const MethodSpec& method, size_t index,
                        Borrowed& borrowed);

}  // namespace cudaexec::python
