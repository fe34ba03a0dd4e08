// nn.EmbeddingBag on GPUs.
#pragma once

#include <array>

#include "base/export.h"
#include "ops/embedding.h"

namespace cudaexec::gpu {

/// As ops/embedding.h, with torch's GPU by-products: the bag of each index, sizes of the bags (one
/// per offset), rows of the maxima (empty for sums and means), all of the dtype of `indices`. An
/// index or offset out of range stops the kernel. Nothing waits.
CUDAEXEC_API std::array<Tensor, 4> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                 const Tensor& offsets,
                                                 const ops::EmbeddingBagOptions& options,
                                                 const OpContext& context);

}  // namespace cudaexec::gpu
