// Scaled dot product attention without its matrix of scores.
#pragma once

#include <optional>
#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

struct AttentionOptions {
  bool causal = false;           // query i sees keys 0 to i
  const Tensor* mask = nullptr;  // added to the scores; bool: false hides the key
  std::optional<double> scale;   // 1 / sqrt(head size) by default
};

/// query [B, H, L, E], key and value [B, H or a divisor of it, S, E], one floating dtype; mask [L,
/// S] or [B, H, L, S], each size possibly 1, of that dtype, float32 or bool. Returns the attention,
/// with the strides of torch.empty_like(query), and the logarithms of the sums of exponentials [B,
/// H, L], float32 (float64 for float64), stored as [B, L, H]. Rows that see no key are 0.
/// @throws ShapeError, DtypeError, OutOfMemory. Thread-safe.
CUDAEXEC_API std::pair<Tensor, Tensor> attention(const Tensor& query, const Tensor& key,
                                                 const Tensor& value,
                                                 const AttentionOptions& options,
                                                 const OpContext& context);

}  // namespace cudaexec::ops
