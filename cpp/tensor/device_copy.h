// Copying between tensors wherever they are: host, a GPU, either way.
#pragma once

#include "base/export.h"
#include "device/device_interface.h"
#include "memory/allocator.h"
#include "tensor/tensor.h"

namespace cudaexec {

/// The device itself. @throws DeviceError if it does not exist.
CUDAEXEC_API DeviceInterface& device_interface(Device device);

/// Copies the elements of `src` to `dst`: same dtype and sizes, any strides (src's may be 0), no
/// overlap. With a GPU the work is ordered on `stream`, a stream of that GPU, and `memory` is its
/// allocator for scratch memory; a copy to the host is done on return, other copies may not be.
/// Pageable host memory may be reused on return; pinned memory only once `stream` has passed.
/// @throws ShapeError, DtypeError; DeviceError for two GPUs; CaptureError if `stream` is being
/// captured and one side is the host; OutOfMemory, NotSupported (a build without GPU code).
CUDAEXEC_API void copy_elements(const Tensor& dst, const Tensor& src, Allocator& memory,
                                StreamRef stream);

/// As copy_elements() for two tensors of the same sizes and strides, by one copy of all bytes from
/// the first element to the last, gaps and overlaps included. Waits for nothing, so bytes on the
/// host are there once `stream` has passed.
CUDAEXEC_API void copy_extent(const Tensor& dst, const Tensor& src, StreamRef stream);

/// A copy with the same sizes, strides and offset 0, whatever the strides are, on the same device;
/// from `memory`.
CUDAEXEC_API Tensor clone_strided(const Tensor& src, Allocator& memory, StreamRef stream);

/// A row-major copy on the host, there on return. `memory` as for copy_elements().
CUDAEXEC_API Tensor host_copy(const Tensor& src, Allocator& host, Allocator& memory,
                              StreamRef stream);

/// Sets all elements to zero bytes.
CUDAEXEC_API void zero_elements(const Tensor& dst, StreamRef stream);

}  // namespace cudaexec
