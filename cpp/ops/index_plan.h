// Where the elements of self[indices] lie in `self`.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// The result has dimensions before, of and after the index block. Positions of the block add
/// `offsets`; the other dimensions are dimensions of `self`.
struct IndexPlan {
  Dims sizes;
  Dims self_strides;       // elements; 0 in the block
  size_t block_first = 0;  // dimensions [block_first, block_last) of `sizes` are the block
  size_t block_last = 0;
  Tensor offsets;  // int64, contiguous: elements from self's first, one per position
  std::vector<Dims>
      operands;  // strides of `self` and the indices over `sizes`: the order of layout
  [[nodiscard]] const int64_t* offset_data() const { return offsets.data_as<const int64_t>(); }
};

/// One index tensor (int32 or int64) per dimension of self; nothing where the whole dimension is
/// taken.
using PerDimension = std::vector<std::optional<Tensor>>;
/// Gives every dimension of `self` its index; `coordinates(mask)` is nonzero(mask), int64
/// [count, rank] with a unit stride along each column. @throws DtypeError, ShapeError.
PerDimension per_dimension(const char* op, const Tensor& self, std::span<const Tensor* const> given,
                           const std::function<Tensor(const Tensor& mask)>& coordinates);
/// All of the plan but the offsets; sizes of the block are those of all indices broadcast.
IndexPlan plan_geometry(const char* op, const Tensor& self, const PerDimension& indices,
                        Dims& block);

/// On the CPU.
IndexPlan plan_index(const char* op, const Tensor& self, std::span<const Tensor* const> indices,
                     const OpContext& context);

}  // namespace cudaexec::ops
