// The Python class cudaexec.Tensor, for the files that make or recognise its instances.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <utility>
#include <vector>

#include "python/keep_storage.h"
#include "python/streams.h"
#include "tensor/tensor.h"

namespace cudaexec::python {

namespace py = pybind11;

/// What an instance holds; large memory is freed without the GIL.
struct TensorObject {
  explicit TensorObject(Tensor source) noexcept : tensor(std::move(source)) {}
  ~TensorObject() {
    StoragePtr storage = tensor.storage();
    for (const StreamRef user : users) order_release(storage, user);
    tensor = Tensor();
    release_storage(std::move(storage));
  }
  TensorObject(const TensorObject&) = delete;
  TensorObject& operator=(const TensorObject&) = delete;

  Tensor tensor;
  /// Streams on which borrowers of the memory work, as far as they are not the memory's own.
  std::vector<StreamRef> users;
};

py::object make_tensor(Tensor tensor);
bool is_tensor_type(PyTypeObject* type) noexcept;
/// The tensor of an instance; valid as long as it lives.
const Tensor& tensor_of(PyObject* object);

/// Elements as nested lists of bool, int or float; the number itself where there are no dimensions.
py::object tensor_to_list(const Tensor& tensor);

/// Installs the buffer protocol in the type being made.
void set_buffer_protocol(PyHeapTypeObject* type) noexcept;

/// What a consumer asks of __dlpack__.
struct DlpackRequest {
  py::object stream;
  std::optional<std::pair<int64_t, int64_t>> max_version;
  std::optional<std::pair<int32_t, int32_t>> device;
  std::optional<bool> copy;
};

/// The capsule of __dlpack__, as the DLPack standard says: memory on a GPU is ready on the
/// consumer's stream, and is freed after the consumer's work. @throws InputError, py::buffer_error.
py::object export_dlpack(const Tensor& tensor, const DlpackRequest& request);
/// The table of C functions for tensors of this class, as a capsule.
py::object make_exchange_capsule();

}  // namespace cudaexec::python
