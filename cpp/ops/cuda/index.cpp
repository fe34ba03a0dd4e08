#include "ops/cuda/index.h"

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/scatter.h"
#include "ops/index_plan.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "index";

/// Places of the block's positions: an IndexPlan over GPU tensors, offsets in bytes.
ops::IndexPlan plan_on_device(const char* op, CudaDevice& device, const Tensor& self,
                              std::span<const Tensor* const> given, const OpContext& context) {
  for (const Tensor* index : given) {
    if (index != nullptr && index->defined()) {
      common_device(op, {{"self", &self}, {"an index", index}});
    }
  }
  const ops::PerDimension indices = ops::per_dimension(
      op, self, given, [&](const Tensor& mask) { return nonzero(mask, context); });
  Dims block;
  ops::IndexPlan plan = ops::plan_geometry(op, self, indices, block);
  plan.offsets = empty(device, block, Dtype::kInt64, context);
  bool add = false;
  for (size_t dim = 0; dim < indices.size(); ++dim) {
    if (!indices[dim]) continue;
    const Tensor expanded = ops::expand(op, *indices[dim], block);
    cuda::IndexOffsetsArgs args{};
    args.index = expanded.data();
    args.offsets = plan.offsets.data_as<int64_t>();
    args.count = plan.offsets.numel();
    args.shape = index_shape(op, block);
    put_strides(args.index_strides, expanded.strides(), expanded.itemsize());
    args.size = self.size(dim);
    args.stride = self.stride(dim) * static_cast<int64_t>(self.itemsize());
    args.wide = expanded.dtype() == Dtype::kInt64;
    args.add = add;
    launch(device, kImage, "cudaexec_index_offsets", args, blocks_for(args.count), context.stream);
    add = true;
  }
  if (!add) fill_zero(device, plan.offsets, context.stream);
  return plan;
}

cuda::IndexPlacesArgs places_args(const char* op, const ops::IndexPlan& plan, const Tensor& self) {
  cuda::IndexPlacesArgs args{};
  args.offsets = plan.offset_data();
  args.self = self.data();
  args.shape = index_shape(op, plan.sizes);
  args.count = 1;
  for (const int64_t size : plan.sizes) args.count *= size;
  put_strides(args.self_strides, plan.self_strides, self.itemsize());
  const Dims& block = plan.offsets.strides();
  for (size_t i = 0; i < block.size(); ++i) args.block_strides[plan.block_first + i] = block[i];
  return args;
}

}  // namespace

cuda::IndexShape index_shape(const char* op, std::span<const int64_t> sizes) {
  cuda::IndexShape shape;
  if (sizes.size() > cuda::kMaxIndexRank) {
    throw NotSupported(str(op, ": sizes ", list_str(sizes), ": GPUs index up to ",
                           cuda::kMaxIndexRank, " dimensions; join some of them"));
  }
  shape.rank = static_cast<int32_t>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) shape.sizes[i] = sizes[i];
  return shape;
}

void put_strides(int64_t (&to)[cuda::kMaxIndexRank], std::span<const int64_t> strides,
                 size_t itemsize) {
  for (size_t i = 0; i < strides.size(); ++i) to[i] = strides[i] * static_cast<int64_t>(itemsize);
}

Tensor index(const Tensor& self, std::span<const Tensor* const> indices, const OpContext& context) {
  CudaDevice& device = common_device("index", {{"self", &self}});
  const ops::IndexPlan plan = plan_on_device("index", device, self, indices, context);
  const Dims strides = ops::ordered_strides(plan.sizes, plan.operands);
  Tensor result = empty_strided(device, plan.sizes, strides, self.dtype(), context);
  if (result.numel() == 0) return result;
  cuda::IndexPlacesArgs args = places_args("index", plan, self);
  args.result = result.data();
  put_strides(args.result_strides, strides, self.itemsize());
  launch(device, kImage, str("cudaexec_index_gather_", self.itemsize()), args,
         blocks_for(args.count), context.stream);
  return result;
}

void index_put(const Tensor& self, std::span<const Tensor* const> indices, const Tensor& values,
               bool accumulate, const OpContext& context) {
  CudaDevice& device = common_device("index_put", {{"self", &self}, {"values", &values}});
  ops::require_same_dtype("index_put", "self", self, "values", values);
  const ops::IndexPlan plan = plan_on_device("index_put", device, self, indices, context);
  const Tensor expanded = ops::expand("index_put", values, plan.sizes);
  if (expanded.numel() == 0) return;
  cuda::IndexPlacesArgs args = places_args("index_put", plan, self);
  const Tensor places = empty(device, Dims{args.count}, Dtype::kInt64, context);
  args.places = places.data_as<int64_t>();
  launch(device, kImage, "cudaexec_index_places", args, blocks_for(args.count), context.stream);
  const bool single = values.numel() == 1 && !accumulate;
  const Tensor packed = single ? values : contiguous(device, expanded, context);
  if (!accumulate) return write_at(device, self, places, packed.data(), single, context.stream);
  combine_at(device, self, places, packed, cuda::Combine::kSum, true, context);
}

}  // namespace cudaexec::gpu
