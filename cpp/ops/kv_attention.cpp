#include "ops/kv_attention.h"

#include <algorithm>

#include "ops/kv_attention_run.h"
#include "ops/operand.h"

namespace cudaexec::ops {
namespace {

constexpr const char* kOp = "KV attention";

void require_positions(const Tensor& index, const KvStep& step) {
  const auto* positions = index.data_as<const int64_t>();
  for (int64_t t = 0; t < step.width; ++t) {
    const int64_t found = positions[t * index.stride(0)];
    if (found == step.position + t) continue;
    throw InputError(str(kOp, ": token ", t, " of this call has position ", found,
                         "; the session holds ", step.position, " tokens, expected position ",
                         step.position + t,
                         "; pass position + arange(width), or rewind() the session first"));
  }
}

}  // namespace

KvOperands check_kv_operands(const KvStep* step, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& index, int64_t layer) {
  if (step == nullptr) {
    throw InternalError(str(kOp,
                            ": the program uses a KV cache outside of a step; export the file "
                            "again"));
  }
  for (const auto& [name, t] : {std::pair("q", &q), {"k", &k}, {"v", &v}}) {
    require_rank(kOp, name, *t, 4);
    require_dtype(kOp, name, *t, {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16});
    require_same_dtype(kOp, "q", q, name, *t);
  }
  require_rank(kOp, "index", index, 1);
  require_dtype(kOp, "index", index, {Dtype::kInt64});
  const auto found = std::ranges::find(*step->layers, layer, &KvLayerView::id);
  if (found == step->layers->end()) {
    throw InternalError(
        str(kOp, ": the program's cache has no layer ", layer, "; export the file again"));
  }
  const KvLayerView& view = *found;
  const Dims wanted{view.batch, view.heads, step->width, view.head_dim};
  for (const auto& [name, t] : {std::pair("k", &k), {"v", &v}}) {
    if (t->sizes() == wanted) continue;
    throw ShapeError(str(kOp, ": layer ", layer, ": ", name, " is ", describe(*t), "; a step of ",
                         step->width, " tokens of this cache has sizes ", list_str(wanted)));
  }
  const int64_t heads = q.size(1);
  const bool fits = q.size(0) == view.batch && heads > 0 && heads % view.heads == 0 &&
                    q.size(2) == step->width && q.size(3) == view.head_dim;
  if (!fits || index.size(0) != step->width) {
    throw ShapeError(str(kOp, ": layer ", layer, ": q is ", describe(q), " and index ",
                         describe(index), "; expected [", view.batch, ", a multiple of ",
                         view.heads, ", ", step->width, ", ", view.head_dim, "] and [", step->width,
                         "]"));
  }
  return {&view, view.batch, heads, view.heads, heads / view.heads, step->width, view.head_dim};
}

Tensor kv_attention(const KvStep* step, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& index, int64_t layer, double scale, const OpContext& context) {
  const KvOperands operands = check_kv_operands(step, q, k, v, index, layer);
  for (const auto& [name, t] : {std::pair("q", &q), {"k", &k}, {"v", &v}, {"index", &index}}) {
    if (!t->device().is_cpu() || !step->device.is_cpu()) {
      throw DeviceError(str(kOp, ": ", name, " is on ", to_string(t->device()),
                            " and the cache on ", to_string(step->device),
                            "; expected the CPU for both"));
    }
  }
  require_positions(index, *step);
  const Dims sizes{operands.batch, operands.heads, operands.tokens, operands.head_dim};
  const int64_t row = operands.heads * operands.head_dim;
  Tensor out = empty_strided(sizes, Dims{operands.tokens * row, operands.head_dim, row, 1},
                             q.dtype(), context);
  KvAttentionRun run(*step, operands, {&q, &k, &v, &out}, scale, context);
  run.append();
  run.attend();
  return out;
}

}  // namespace cudaexec::ops
