#include "ops/cuda/embedding.h"

#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/embedding_args.h"
#include "ops/cuda/launch.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kOp = "embedding_bag";

void check(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
           const ops::EmbeddingBagOptions& options) {
  ops::require_floating(kOp, "weight", weight);
  ops::require_rank(kOp, "weight", weight, 2);
  ops::require_index(kOp, "indices", indices);
  ops::require_rank(kOp, "indices", indices, 1);
  ops::require_index(kOp, "offsets", offsets);
  ops::require_rank(kOp, "offsets", offsets, 1);
  if (options.include_last_offset && offsets.numel() == 0) {
    throw ShapeError(str(kOp, ": offsets is empty; expected the last offset at least"));
  }
  if (options.per_sample_weights == nullptr) return;
  const Tensor& samples = *options.per_sample_weights;
  ops::require_same_dtype(kOp, "weight", weight, "per_sample_weights", samples);
  common_device(kOp, {{"weight", &weight}, {"per_sample_weights", &samples}});
  if (options.mode != ops::BagMode::kSum || !(samples.sizes() == indices.sizes())) {
    throw ShapeError(str(kOp, ": per_sample_weights ", describe(samples), " for indices ",
                         describe(indices), "; expected equal sizes, and the mode sum"));
  }
}

}  // namespace

std::array<Tensor, 4> embedding_bag(const Tensor& weight, const Tensor& indices,
                                    const Tensor& offsets, const ops::EmbeddingBagOptions& options,
                                    const OpContext& context) {
  check(weight, indices, offsets, options);
  CudaDevice& device =
      common_device(kOp, {{"weight", &weight}, {"indices", &indices}, {"offsets", &offsets}});
  const Tensor table = contiguous(device, weight, context);
  const Tensor rows = contiguous(device, indices, context);
  const Tensor starts = contiguous(device, offsets, context);
  Tensor samples;
  if (options.per_sample_weights != nullptr) {
    samples = contiguous(device, *options.per_sample_weights, context);
  }
  const int64_t bags = offsets.numel() - (options.include_last_offset ? 1 : 0);
  const bool is_max = options.mode == ops::BagMode::kMax;
  Tensor out = empty(device, Dims{bags, weight.size(1)}, weight.dtype(), context);
  Tensor bag_of_index = empty(device, indices.sizes(), indices.dtype(), context);
  Tensor sizes = empty(device, offsets.sizes(), indices.dtype(), context);
  Tensor max_rows = empty(device, is_max ? out.sizes() : Dims{0}, indices.dtype(), context);
  fill_zero(device, sizes, context.stream);
  fill_zero(device, bag_of_index, context.stream);
  const cuda::EmbeddingBagArgs args{table.data(),
                                    rows.data(),
                                    starts.data(),
                                    samples.defined() ? samples.data() : nullptr,
                                    out.data(),
                                    bag_of_index.data(),
                                    sizes.data(),
                                    is_max ? max_rows.data() : nullptr,
                                    bags,
                                    weight.size(1),
                                    weight.size(0),
                                    indices.numel(),
                                    options.padding_idx,
                                    static_cast<int32_t>(options.mode),
                                    options.include_last_offset,
                                    indices.dtype() == Dtype::kInt64,
                                    offsets.dtype() == Dtype::kInt64};
  launch(device, "embedding", str("cudaexec_embedding_bag_", dtype_name(weight.dtype())), args,
         blocks_for(out.numel()), context.stream);
  return {std::move(out), std::move(bag_of_index), std::move(sizes), std::move(max_rows)};
}

}  // namespace cudaexec::gpu
