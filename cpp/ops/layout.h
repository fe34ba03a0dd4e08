// Views of a tensor, and operators that only move elements.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// Views of self's storage. @throws ShapeError for dimensions or ranges that do not exist.
CUDAEXEC_API Tensor permute(const Tensor& self, std::span<const int64_t> dims);
CUDAEXEC_API Tensor squeeze(const Tensor& self, int64_t dim);
CUDAEXEC_API Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length);
/// start and end count from the end if negative and are clipped to the size.
CUDAEXEC_API Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
                          std::optional<int64_t> end, int64_t step);
/// The bytes as another dtype; the last dimension changes where the sizes of the dtypes differ.
CUDAEXEC_API Tensor view_dtype(const Tensor& self, Dtype dtype);

/// A view where strides allow it, else a contiguous copy. One size may be -1: the rest.
CUDAEXEC_API Tensor reshape(const Tensor& self, std::span<const int64_t> sizes,
                            const OpContext& context);
/// Joins along `dim`; dtypes are promoted, empty 1-D tensors are skipped, a common memory format
/// stays.
CUDAEXEC_API Tensor cat(std::span<const Tensor* const> tensors, int64_t dim,
                        const OpContext& context);
/// `pad` holds a pair (before, after) per dimension from the last; negative amounts cut. `mode` is
/// constant (with `value`), reflect, replicate or circular.
CUDAEXEC_API Tensor pad(const Tensor& self, std::span<const int64_t> pad, std::string_view mode,
                        double value, const OpContext& context);
/// Sets every element, converted to the dtype.
CUDAEXEC_API void fill(const Tensor& self, double value);

}  // namespace cudaexec::ops
