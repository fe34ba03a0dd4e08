#include "ops/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/attention_run.h"
#include "ops/gemm.h"
#include "ops/gemm_half.h"
#include "ops/operand.h"

namespace cudaexec::ops {
namespace {

constexpr const char* kOp = "scaled dot product attention";

void check_operands(const Tensor& query, const Tensor& key, const Tensor& value) {
  require_floating(kOp, "query", query);
  for (const auto& [name, t] : {std::pair("query", &query), {"key", &key}, {"value", &value}}) {
    require_rank(kOp, name, *t, 4);
    require_same_dtype(kOp, "query", query, name, *t);
    if (!t->device().is_cpu()) {
      throw DeviceError(
          str(kOp, ": ", name, " is on ", to_string(t->device()), "; expected the CPU"));
    }
  }
  const bool one_head_group = key.size(1) != 0 && query.size(1) % key.size(1) == 0;
  if (key.size(0) != query.size(0) || !(one_head_group || query.size(1) == 0) ||
      key.size(3) != query.size(3)) {
    throw ShapeError(str(kOp, ": key ", describe(key), " does not fit query ", describe(query),
                         "; expected [B, H or a divisor, S, E]"));
  }
  if (value.sizes() != key.sizes()) {
    throw ShapeError(
        str(kOp, ": value is ", describe(value), "; expected the sizes of key ", describe(key)));
  }
}

void read_mask(const Tensor& mask, AttentionProblem& p) {
  if (mask.dtype() != p.dtype && mask.dtype() != Dtype::kFloat32) {
    require_dtype(kOp, "mask", mask, {Dtype::kBool, Dtype::kFloat32, p.dtype});
  }
  const Dims wanted{p.batch, p.heads, p.queries, p.keys};
  const auto rank = mask.sizes().size();
  if (rank != 2 && rank != 4) {
    throw ShapeError(str(kOp, ": mask is ", describe(mask), "; expected 2 or 4 dimensions"));
  }
  const Tensor expanded = expand(kOp, mask, wanted);
  p.mask = mask.data();
  p.mask_dtype = mask.dtype();
  std::copy_n(expanded.strides().data(), 4, p.mask_strides.begin());
}

AttentionProblem::Strides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

void run(const AttentionProblem& p, const OpContext& context) {
  const GemmKernelSet& gemm = gemm_kernels();
  const AttentionKernelSet& rows = attention_kernels();
  switch (p.dtype) {
    case Dtype::kFloat64:
      return AttentionRun<double>(p, context, gemm.f64, rows.f64).run();
    case Dtype::kBfloat16:
      return AttentionRun<float>(p, context, gemm.bf16, rows.f32).run();
    case Dtype::kFloat16:
      return AttentionRun<float>(p, context, gemm.f16, rows.f32).run();
    default:
      return AttentionRun<float>(p, context, gemm.f32, rows.f32).run();
  }
}

template <typename Acc, typename Element, typename Widen>
void add_elements(Acc* row, const void* mask, int64_t count, int64_t stride, Widen widen) {
  const auto* elements = static_cast<const Element*>(mask);
  for (int64_t i = 0; i < count; ++i) row[i] += widen(elements[i * stride]);
}

}  // namespace

const AttentionKernelSet& attention_kernels() noexcept {
  for (const AttentionKernelSet* set : {&kAttentionAvx512, &kAttentionAvx2}) {
    if (std::strcmp(set->name, gemm_kernels().name) == 0) return *set;
  }
  return kAttentionPortable;
}

template <typename Acc>
void add_mask(Acc* row, const void* mask, Dtype dtype, int64_t count, int64_t stride,
              const AttentionKernel<Acc>& kernel) {
  const auto as_is = [](auto x) { return static_cast<Acc>(x); };
  switch (dtype) {
    case Dtype::kBool:
      return add_elements<Acc, bool>(row, mask, count, stride, [](bool visible) {
        return visible ? Acc{0} : -std::numeric_limits<Acc>::infinity();
      });
    case Dtype::kBfloat16:
      return add_elements<Acc, uint16_t>(row, mask, count, stride, bf16_to_float);
    case Dtype::kFloat16:
      return add_elements<Acc, uint16_t>(row, mask, count, stride, f16_to_float);
    case Dtype::kFloat64:
      return add_elements<Acc, double>(row, mask, count, stride, as_is);
    default:
      break;
  }
  if constexpr (sizeof(Acc) == sizeof(float)) {
    if (stride == 1) return kernel.add(row, static_cast<const Acc*>(mask), count);
  }
  add_elements<Acc, float>(row, mask, count, stride, as_is);
}

template void add_mask(float*, const void*, Dtype, int64_t, int64_t, const AttentionKernel<float>&);
template void add_mask(double*, const void*, Dtype, int64_t, int64_t,
                       const AttentionKernel<double>&);

std::pair<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options, const OpContext& context) {
  check_operands(query, key, value);
  AttentionProblem p{};
  p.dtype = query.dtype();
  p.batch = query.size(0);
  p.heads = query.size(1);
  p.heads_per_kv = p.heads == 0 ? 1 : p.heads / key.size(1);
  p.queries = query.size(2);
  p.keys = key.size(2);
  p.depth = query.size(3);
  p.causal = options.causal;
  p.scale =
      options.scale.value_or(p.depth == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.depth)));
  if (options.mask != nullptr) read_mask(*options.mask, p);

  Tensor out = empty_strided(query.sizes(), strides_like(query), p.dtype, context);
  const Dtype sums_dtype = p.dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32;
  Tensor log_sums = empty_strided(Dims{p.batch, p.heads, p.queries},
                                  Dims{p.queries * p.heads, 1, p.heads}, sums_dtype, context);
  if (out.numel() == 0 && log_sums.numel() == 0) return {std::move(out), std::move(log_sums)};
  p.query = query.data();
  p.key = key.data();
  p.value = value.data();
  p.out = out.data();
  p.log_sums = log_sums.data();
  p.query_strides = strides_of(query);
  p.key_strides = strides_of(key);
  p.value_strides = strides_of(value);
  p.out_strides = strides_of(out);
  p.log_sum_strides = {p.queries * p.heads, 1, p.heads};
  run(p, context);
  return {std::move(out), std::move(log_sums)};
}

}  // namespace cudaexec::ops
