// Checks, layouts and broadcasting that the operators share. Layout rules follow torch, since
// generated code reads results through raw pointers with the strides that torch would have given.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// Elements that one thread should get at least.
inline constexpr int64_t kGrain = 32768;

/// `dim` counted from the front; a scalar counts as one dimension. @throws ShapeError.
int64_t wrap_dim(const char* op, int64_t dim, int64_t rank);

/// @throws DtypeError unless the dtype is one of `allowed`.
void require_dtype(const char* op, const char* operand, const Tensor& tensor,
                   std::initializer_list<Dtype> allowed);
/// @throws DtypeError unless floating point.
void require_floating(const char* op, const char* operand, const Tensor& tensor);
/// @throws DtypeError unless int32 or int64.
void require_index(const char* op, const char* operand, const Tensor& tensor);
/// @throws DtypeError unless the dtypes are equal.
void require_same_dtype(const char* op, const char* a_name, const Tensor& a, const char* b_name,
                        const Tensor& b);
/// @throws ShapeError unless `tensor` has `rank` dimensions.
void require_rank(const char* op, const char* operand, const Tensor& tensor, int64_t rank);

/// torch's result type of two tensors of one category of rank (0-d operands are not special).
Dtype promote(Dtype a, Dtype b) noexcept;

/// Uninitialised memory on the CPU.
Tensor empty(std::span<const int64_t> sizes, Dtype dtype, const OpContext& context);
Tensor empty_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides, Dtype dtype,
                     const OpContext& context);

/// The tensor itself if it is row-major contiguous, else a copy that is.
Tensor contiguous(const Tensor& tensor, const OpContext& context);
/// As above, with the elements converted to `dtype`.
Tensor contiguous_as(const Tensor& tensor, Dtype dtype, const OpContext& context);

/// Sizes of the broadcast of all. @throws ShapeError.
Dims broadcast_sizes(const char* op, std::span<const Dims> operands);
/// A view with stride 0 where `tensor` is repeated. @throws ShapeError if it does not broadcast.
Tensor expand(const char* op, const Tensor& tensor, std::span<const int64_t> sizes);

/// Whether the elements fill a block of memory without gaps or overlap.
bool is_dense(const Tensor& tensor);
/// Strides without gaps whose order follows the operands' strides (each as long as `sizes`),
/// earlier operands first; stride 0 says nothing. torch allocates results of element-wise operators
/// so.
Dims ordered_strides(std::span<const int64_t> sizes, std::span<const Dims> operands);
/// torch.empty_like's strides (memory_format=preserve_format).
Dims strides_like(const Tensor& tensor);

/// A copy with those strides.
Tensor clone(const Tensor& self, const OpContext& context);

enum class MemoryFormat { kContiguous, kChannelsLast, kChannelsLast3d };
/// The format that torch takes the strides of a 4-D or 5-D tensor for.
MemoryFormat memory_format(const Tensor& tensor);
/// Strides of `sizes` in that format; contiguous where the rank does not fit it.
Dims strides_in(MemoryFormat format, std::span<const int64_t> sizes);

/// A tensor seen as [outer, count, inner] around dimension `dim`. A scalar is [1, 1, 1].
struct Split {
  int64_t outer = 1;
  int64_t count = 1;
  int64_t inner = 1;
};
Split split_at(std::span<const int64_t> sizes, int64_t dim);

/// Two tensors walked together: an axis with the strides of both, in bytes.
struct PairAxis {
  int64_t size = 1;
  int64_t a = 0;
  int64_t b = 0;
};
/// Dimensions [first, last) of both as axes, outermost first, in order; size 1 dropped, neighbours
/// merged where both allow it.
std::vector<PairAxis> pair_axes(std::span<const int64_t> sizes, std::span<const int64_t> a_strides,
                                int64_t a_itemsize, std::span<const int64_t> b_strides,
                                int64_t b_itemsize, size_t first, size_t last);
/// Byte offsets of position `index` (row-major over the axes).
inline void pair_offsets(const std::vector<PairAxis>& axes, int64_t index, int64_t& a, int64_t& b) {
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t at = index % axes[i].size;
    index /= axes[i].size;
    a += at * axes[i].a;
    b += at * axes[i].b;
  }
}

}  // namespace cudaexec::ops
