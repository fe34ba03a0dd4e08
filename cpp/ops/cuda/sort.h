// Order along a dimension, on GPUs: as ops/sort.h. Lines have less than 2^31 elements.
#pragma once

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "ops/op_context.h"
#include "ops/sort.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

using ops::ValuesAndIndices;

CUDAEXEC_API ValuesAndIndices sort(const Tensor& self, int64_t dim, bool descending,
                                   const OpContext& context);
/// Sorted, equal values by index.
CUDAEXEC_API ValuesAndIndices topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                                   const OpContext& context);
CUDAEXEC_API ValuesAndIndices kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                                       const OpContext& context);

/// The lower median of all elements (0-d); NaN if one is NaN, unless they are to be ignored, or if
/// there is no element.
CUDAEXEC_API Tensor median(const Tensor& self, bool ignore_nan, const OpContext& context);

/// Entries of one or more lines, sorted in place by unsigned key; equal keys keep their order.
/// `keys` uint64 (as int64) and `places` int32, both [lines, length], contiguous.
struct SortEntries {
  Tensor keys;
  Tensor places;
};
/// 0, 1, 2, ... into int32 `places`.
void number_entries(CudaDevice& device, const Tensor& places, StreamRef stream);
void sort_entries(CudaDevice& device, SortEntries& entries, int64_t lines, int64_t length,
                  const OpContext& context);

}  // namespace cudaexec::gpu
