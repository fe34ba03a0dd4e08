// Writing and reducing to positions that an index tensor names along one dimension.
#pragma once

#include <string_view>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// out = self, then for every position p of `index` (int32 or int64, not negative):
/// out[p with index[p] in dimension dim] = src[p]; of several the last one stays.
/// `out` may be `self`. @throws InputError for an index out of range, ShapeError, DtypeError.
CUDAEXEC_API void scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& src, const OpContext& context);
/// As above with one value for all.
CUDAEXEC_API void scatter_value(const Tensor& out, const Tensor& self, int64_t dim,
                                const Tensor& index, double value, const OpContext& context);

/// As scatter(), but combines: `reduce` is sum, prod, mean, amax or amin. Without `include_self`
/// the old values of touched positions do not count. The half types are combined in float32.
CUDAEXEC_API void scatter_reduce(const Tensor& out, const Tensor& self, int64_t dim,
                                 const Tensor& index, const Tensor& src, std::string_view reduce,
                                 bool include_self, const OpContext& context);

/// The index (expanded over the source) and the source with which scatter_reduce() does what
/// index_reduce() is asked for. @throws ShapeError, NotSupported.
CUDAEXEC_API std::pair<Tensor, Tensor> index_reduce_rows(const Tensor& self, int64_t dim,
                                                         const Tensor& index, const Tensor& source,
                                                         std::string_view reduce);

/// A copy of `self` with slice index[i] (of dimension dim) combined with source's slice i; `reduce`
/// is prod, mean, amax or amin.
CUDAEXEC_API Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index,
                                 const Tensor& source, std::string_view reduce, bool include_self,
                                 const OpContext& context);

}  // namespace cudaexec::ops
