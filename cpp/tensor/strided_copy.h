// Copying between two host tensors of any strides.
#pragma once

#include "base/export.h"
#include "tensor/tensor.h"

namespace cudaexec {

/// Copies the elements of `src` to `dst`: same dtype and sizes, any strides (src's may be 0), no
/// overlap. Both on the CPU. Parallel for large tensors. @throws ShapeError, DtypeError,
/// DeviceError.
CUDAEXEC_API void strided_copy(const Tensor& dst, const Tensor& src);

/// As above between different dtypes, converted as torch's `Tensor.to` does.
CUDAEXEC_API void strided_convert(const Tensor& dst, const Tensor& src);

/// A copy with row-major strides, from `allocator`.
CUDAEXEC_API Tensor contiguous_copy(const Tensor& src, Allocator& allocator, StreamRef stream);

}  // namespace cudaexec
