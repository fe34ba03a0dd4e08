// Sums, means and maxima of bags of table rows (nn.EmbeddingBag).
#pragma once

#include <array>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

enum class BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

struct EmbeddingBagOptions {
  BagMode mode = BagMode::kSum;
  const Tensor* per_sample_weights = nullptr;  // [indices], dtype of weight; sum only
  bool include_last_offset = false;            // offsets end with the number of indices
  int64_t padding_idx = -1;                    // rows that do not count; -1: none
  bool forward_only = true;                    // torch's sizes of the third result depend on it
};

/// weight [rows, width], indices [n] and offsets [bags] (int32 or int64). Returns the bags
/// [bags, width], then torch's by-products: the bag of each index (or empty), sizes of the bags,
/// rows of the maxima. @throws InputError for an index or offset out of range.
CUDAEXEC_API std::array<Tensor, 4> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                 const Tensor& offsets,
                                                 const EmbeddingBagOptions& options,
                                                 const OpContext& context);

}  // namespace cudaexec::ops
