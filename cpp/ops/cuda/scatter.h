// Writing and reducing to positions that an index tensor names along one dimension, on GPUs: as
// ops/scatter.h, with the differences that ops/cuda/index.h names. Nothing waits.
#pragma once

#include <string_view>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/index_args.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

CUDAEXEC_API void scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& src, const OpContext& context);
CUDAEXEC_API void scatter_value(const Tensor& out, const Tensor& self, int64_t dim,
                                const Tensor& index, double value, const OpContext& context);
/// In the order of the index, apart from sums of float32, float64, int32 and int64 with
/// `include_self`, which are atomic additions.
CUDAEXEC_API void scatter_reduce(const Tensor& out, const Tensor& self, int64_t dim,
                                 const Tensor& index, const Tensor& src, std::string_view reduce,
                                 bool include_self, const OpContext& context);

/// A copy of `self` with slice index[i] (of dimension dim) combined with source's slice i; `reduce`
/// is prod, mean, amax or amin.
CUDAEXEC_API Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index,
                                 const Tensor& source, std::string_view reduce, bool include_self,
                                 const OpContext& context);

/// out[places[i]] = values[i]; `places` int64, bytes from out's first element; values contiguous.
void write_at(CudaDevice& device, const Tensor& out, const Tensor& places, const void* values,
              bool single, StreamRef stream);
/// As above, combining; `places` is used up.
void combine_at(CudaDevice& device, const Tensor& out, Tensor places, const Tensor& values,
                cuda::Combine combine, bool include_self, const OpContext& context);

}  // namespace cudaexec::gpu
