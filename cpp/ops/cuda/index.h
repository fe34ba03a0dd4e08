// Advanced indexing and masks on GPUs: as ops/index.h, but: an integer index out of range stops the
// kernel, after which the process cannot use the device any more (as torch's assertion); of equal
// positions written, any one stays. Functions that say so wait for the stream, because a size
// depends on values, and throw CaptureError while the stream is being captured.
#pragma once

#include <span>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/index_args.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

/// Waits if an index is a mask.
CUDAEXEC_API Tensor index(const Tensor& self, std::span<const Tensor* const> indices,
                          const OpContext& context);
/// Waits if an index is a mask. Additions to one position are made in order for the 16-bit floating
/// and the small integer types, in any order for float32, float64, int32 and int64.
CUDAEXEC_API void index_put(const Tensor& self, std::span<const Tensor* const> indices,
                            const Tensor& values, bool accumulate, const OpContext& context);

/// Waits.
CUDAEXEC_API Tensor nonzero(const Tensor& self, const OpContext& context);
CUDAEXEC_API Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill,
                                   const OpContext& context);
/// Waits.
CUDAEXEC_API Tensor masked_select(const Tensor& self, const Tensor& mask, const OpContext& context);
/// Too short a `source` stops the kernel.
CUDAEXEC_API Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source,
                                   const OpContext& context);

/// Indices i, each repeats[i] times, of the dtype of `repeats`. Waits unless `output_size` is
/// given; counts below 0 or a larger `output_size` stop the kernel.
CUDAEXEC_API Tensor repeat_interleave(const Tensor& repeats, const int64_t* output_size,
                                      const OpContext& context);

/// Sizes for a kernel. @throws NotSupported for more than kMaxIndexRank dimensions.
cuda::IndexShape index_shape(const char* op, std::span<const int64_t> sizes);
/// Strides in bytes.
void put_strides(int64_t (&to)[cuda::kMaxIndexRank], std::span<const int64_t> strides,
                 size_t itemsize);

}  // namespace cudaexec::gpu
