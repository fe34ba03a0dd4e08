// Attention over the off-graph KV cache of the running call: appends, then attends.
#pragma once

#include "base/export.h"
#include "ops/kv_step.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// Checked operands of one call.
struct KvOperands {
  const KvLayerView* layer;
  int64_t batch, heads, kv_heads, group;  // group: query heads of a kv head
  int64_t tokens, head_dim;
};

/// @throws InternalError if no step is running, ShapeError, DtypeError, InputError naming what does
/// not fit the step's cache.
CUDAEXEC_API KvOperands check_kv_operands(const KvStep* step, const Tensor& q, const Tensor& k,
                                          const Tensor& v, const Tensor& index, int64_t layer);

/// q [B, Hq, T, D], k and v [B, Hkv, T, D], one dtype of float32, float16, bfloat16, any strides;
/// index [T] int64: the positions step->position + arange(T), T being the width of the step.
/// Stores k and v in the cache's dtype (to nearest even, saturating), then query t attends, in
/// float32, the stored tokens s <= index[t] (a ring: index[t] - window < s). Returns [B, Hq, T, D]
/// of q's dtype with the memory of [B, T, Hq, D].
/// @throws as above, InputError for other positions, OutOfMemory; then nothing was stored.
CUDAEXEC_API Tensor kv_attention(const KvStep* step, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& index, int64_t layer, double scale,
                                 const OpContext& context);

}  // namespace cudaexec::ops
