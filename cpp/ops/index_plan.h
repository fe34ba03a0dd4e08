// Where the elements of self[indices] lie in `self`.
#pragma once

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

IndexPlan plan_index(const char* op, const Tensor& self, std::span<const Tensor* const> indices,
                     const OpContext& context);

}  // namespace cudaexec::ops
