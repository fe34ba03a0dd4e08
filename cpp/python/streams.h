// CUDA streams as Python names them, and memory that several streams use.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

#include "device/device.h"
#include "tensor/tensor.h"

namespace cudaexec::python {

/// The stream that a caller chose for work on `device`: an int handle (0 and 1 mean the legacy
/// default stream, 2 the calling thread's default stream), an object with `__cuda_stream__` (the
/// protocol of cuda-core), `cuda_stream` (torch) or `ptr` (cupy); nothing for None. It is used
/// as it is: the caller keeps it alive as long as the memory that is ordered on it.
/// @throws InputError for anything else and for a program on the CPU; DeviceError if the stream is
/// of another GPU. `place` begins the message.
std::optional<StreamRef> stream_from_object(PyObject* object, Device device,
                                            const std::string& place);

/// The numbers of DLPack and of `__cuda_array_interface__`: 1 is the legacy default stream, 2 the
/// thread's default stream, all others are handles.
StreamRef stream_from_number(uint64_t number) noexcept;
uint64_t number_from_stream(StreamRef stream) noexcept;

/// A view of `tensor` for a user that works on `stream`: when it is dropped, the memory's own
/// stream waits for what is on `stream` by then, so that freeing it there is in order. `tensor`
/// itself on the CPU and where `stream` is the memory's own.
Tensor used_on(const Tensor& tensor, StreamRef stream);

/// `tensor` with a reference to `object`, the Python object of the stream that its memory is freed
/// on, which ends after the memory does. `tensor` itself on the CPU and for ints.
Tensor kept_with_stream(const Tensor& tensor, PyObject* object);

/// Makes the stream of `storage` wait for what is on `user` now, before the storage is dropped.
void order_release(const StoragePtr& storage, StreamRef user) noexcept;

/// Makes work that is put on `stream` of the tensor's GPU from now on follow what made the tensor.
void make_ready_on(const Tensor& tensor, StreamRef stream);

}  // namespace cudaexec::python
