// The Python class cudaexec.Tensor, for the files that make or recognise its instances.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "python/keep_storage.h"
#include "tensor/tensor.h"

namespace cudaexec::python {

namespace py = pybind11;

/// What an instance holds; large memory is freed without the GIL.
struct TensorObject {
  explicit TensorObject(Tensor source) noexcept : tensor(std::move(source)) {}
  ~TensorObject() {
    StoragePtr storage = tensor.storage();
    tensor = Tensor();
    release_storage(std::move(storage));
  }
  TensorObject(const TensorObject&) = delete;
  TensorObject& operator=(const TensorObject&) = delete;

  Tensor tensor;
};

py::object make_tensor(Tensor tensor);
bool is_tensor_type(PyTypeObject* type) noexcept;
/// The tensor of an instance; valid as long as it lives.
const Tensor& tensor_of(PyObject* object);

/// Elements as nested lists of bool, int or float; the number itself where there are no dimensions.
py::object tensor_to_list(const Tensor& tensor);

/// Installs the buffer protocol in the type being made.
void set_buffer_protocol(PyHeapTypeObject* type) noexcept;

/// A DLPack capsule, versioned if `versioned`; `copied` marks that the receiver alone has the
/// memory.
py::object make_dlpack_capsule(const Tensor& tensor, bool versioned, bool copied);
/// The table of C functions for tensors of this class, as a capsule.
py::object make_exchange_capsule();

}  // namespace cudaexec::python
