// Advanced indexing: reading and writing through integer and mask tensors, and what masks select.
#pragma once

#include <span>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// self[indices]: entry k indexes dimension k (a mask: as many dimensions as it has); null entries
/// and missing ones take the whole dimension. Indices are int32/int64 (negative ones count from the
/// end), masks bool or uint8. The result's strides are torch's.
/// @throws InputError for an index out of range, ShapeError, DtypeError.
CUDAEXEC_API Tensor index(const Tensor& self, std::span<const Tensor* const> indices,
                          const OpContext& context);

/// Writes `values` (broadcast) to self[indices], or adds them. Equal positions are written in
/// order, so the last one stays. @throws as index(); then `self` may be partly written.
CUDAEXEC_API void index_put(const Tensor& self, std::span<const Tensor* const> indices,
                            const Tensor& values, bool accumulate, const OpContext& context);

/// Coordinates of the non-zero elements, int64 [count, rank] with strides (1, count).
CUDAEXEC_API Tensor nonzero(const Tensor& self, const OpContext& context);
/// As above with exactly `size` rows: cut off, or filled up with `fill`; contiguous.
CUDAEXEC_API Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill,
                                   const OpContext& context);

/// The elements of `self` where `mask` (bool or uint8) is true; both broadcast. 1-D.
CUDAEXEC_API Tensor masked_select(const Tensor& self, const Tensor& mask, const OpContext& context);
/// `self` (broadcast with `mask`) with the k-th selected element replaced by source's k-th.
CUDAEXEC_API Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source,
                                   const OpContext& context);

/// Indices i, each repeats[i] times; 1-D, dtype of `repeats` (int32 or int64). `output_size`, where
/// given, is the expected length.
CUDAEXEC_API Tensor repeat_interleave(const Tensor& repeats, const int64_t* output_size,
                                      const OpContext& context);

}  // namespace cudaexec::ops
