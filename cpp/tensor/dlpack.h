// Tensors to and from DLPack's structs; nothing here knows of Python.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/export.h"
#include "tensor/dlpack_abi.h"
#include "tensor/tensor.h"

namespace cudaexec {

/// The Dtype of a DLPack type, or nothing where it is not supported (lanes other than 1 included).
CUDAEXEC_API std::optional<Dtype> dtype_from_dlpack(dlpack::DLDataType type) noexcept;
CUDAEXEC_API dlpack::DLDataType dtype_to_dlpack(Dtype dtype) noexcept;

/// Pinned host memory counts as the CPU. @throws DeviceError for devices other than CPU and CUDA.
CUDAEXEC_API Device device_from_dlpack(dlpack::DLDevice device);
CUDAEXEC_API dlpack::DLDevice device_to_dlpack(Device device) noexcept;

/// A view of memory that somebody else owns. `first` is the address of element [0, ..., 0];
/// `strides` are in elements and may be zero or negative; `owner` (may be null) is kept alive by
/// the result; `stream` is where GPU memory is ready.
/// @throws ShapeError if a size is negative or the extent overflows.
CUDAEXEC_API Tensor borrow_strided(void* first, Dims sizes, Dims strides, Dtype dtype,
                                   Device device, std::shared_ptr<void> owner,
                                   StreamRef stream = StreamRef());

/// A view of what `source` describes; sizes and strides are copied.
/// @throws DtypeError, DeviceError, ShapeError; InputError if it has elements but no address.
CUDAEXEC_API Tensor tensor_from_dlpack(const dlpack::DLTensor& source, std::shared_ptr<void> owner,
                                       StreamRef stream = StreamRef());

/// Fills `out` with a view of `tensor`, which must outlive it.
CUDAEXEC_API void view_as_dlpack(const Tensor& tensor, dlpack::DLTensor& out) noexcept;

/// Structs that share ownership of the tensor's storage; the receiver calls `deleter` once, from
/// any thread.
CUDAEXEC_API dlpack::DLManagedTensorVersioned* export_dlpack_versioned(const Tensor& tensor,
                                                                       uint64_t flags);
CUDAEXEC_API dlpack::DLManagedTensor* export_dlpack_legacy(const Tensor& tensor);

}  // namespace cudaexec
