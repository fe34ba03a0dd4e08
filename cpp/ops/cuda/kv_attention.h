// Attention over the off-graph KV cache on GPUs: as ops/kv_attention.h, but positions are checked
// on the device. Where they are others than the step's, nothing is stored, the result is NaN and
// the step's KvFault says so.
#pragma once

#include "base/export.h"
#include "ops/kv_step.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

/// What is launched depends on sizes alone, never on the position: a captured graph of it serves
/// every position. @throws as ops::kv_attention, NotSupported for a head size above 512.
CUDAEXEC_API Tensor kv_attention(const KvStep* step, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& index, int64_t layer, double scale,
                                 const OpContext& context);

}  // namespace cudaexec::gpu
