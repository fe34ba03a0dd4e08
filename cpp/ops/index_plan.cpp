#include "ops/index_plan.h"

#include "device/thread_pool.h"
#include "ops/index.h"
#include "ops/operand.h"

namespace cudaexec::ops {
namespace {

void append_mask(const char* op, const Tensor& self, const Tensor& mask, PerDimension& indices,
                 const std::function<Tensor(const Tensor& mask)>& coordinates) {
  const size_t first = indices.size();
  if (mask.dim() == 0) throw ShapeError(str(op, ": a mask needs at least one dimension"));
  for (size_t i = 0; i < mask.sizes().size(); ++i) {
    if (first + i >= self.sizes().size() || mask.size(i) != self.size(first + i)) {
      throw ShapeError(str(op, ": mask ", list_str(mask.sizes()), " does not match ",
                           list_str(self.sizes()), " at dimension ", first + i));
    }
  }
  const Tensor found = coordinates(mask);
  for (size_t i = 0; i < mask.sizes().size(); ++i) {
    indices.emplace_back(Tensor(found.storage(), found.offset() + found.stride(1) * int64_t(i),
                                Dims{found.size(0)}, Dims{1}, Dtype::kInt64));
  }
}

// Adds stride * index of one dimension to the block's offsets.
void add_offsets(const char* op, const Tensor& index, const Tensor& offsets, size_t dim,
                 int64_t size, int64_t stride, const OpContext& context) {
  const Tensor expanded = expand(op, index, offsets.sizes());
  const Tensor packed = contiguous_as(expanded, Dtype::kInt64, context);
  const auto* values = packed.data_as<const int64_t>();
  auto* sums = offsets.data_as<int64_t>();
  parallel_for(offsets.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t value = values[i];
      if (value < -size || value >= size) {
        throw InputError(str(op, ": index ", value, " is out of range for dimension ", dim,
                             " of size ", size, "; expected ", -size, " to ", size - 1));
      }
      sums[i] += (value < 0 ? value + size : value) * stride;
    }
  });
}

struct Layout {
  std::vector<size_t> before, after;  // dimensions of self that are taken whole
};

// Adjacent indices leave their result where they stand; scattered ones put it in front.
Layout split_dimensions(const PerDimension& indices) {
  size_t first = indices.size();
  size_t last = 0;
  size_t count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    first = std::min(first, i);
    last = i;
    ++count;
  }
  const bool adjacent = count != 0 && last - first + 1 == count;
  Layout layout;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) (adjacent && i < first ? layout.before : layout.after).push_back(i);
  }
  return layout;
}

// Strides of `tensor`, whose dimensions are result dimensions [first, ...), over all of them.
Dims strides_over(const Tensor& tensor, const Dims& block, size_t first, const Dims& sizes) {
  Dims strides(sizes.size(), 0);
  const size_t shift = block.size() - tensor.sizes().size();
  for (size_t i = 0; i < tensor.sizes().size(); ++i) {
    const size_t at = first + shift + i;
    if (tensor.size(i) != 1 || sizes[at] == 1) strides[at] = tensor.stride(i);
  }
  return strides;
}

void fill_sizes(IndexPlan& plan, const Tensor& self, const Layout& layout, const Dims& block) {
  const size_t rank = layout.before.size() + block.size() + layout.after.size();
  plan.sizes = Dims(rank);
  plan.self_strides = Dims(rank);
  plan.block_first = layout.before.size();
  plan.block_last = plan.block_first + block.size();
  size_t at = 0;
  for (const size_t dim : layout.before) {
    plan.sizes[at] = self.size(dim);
    plan.self_strides[at++] = self.stride(dim);
  }
  for (const int64_t size : block) plan.sizes[at++] = size;
  for (const size_t dim : layout.after) {
    plan.sizes[at] = self.size(dim);
    plan.self_strides[at++] = self.stride(dim);
  }
}

}  // namespace

PerDimension per_dimension(const char* op, const Tensor& self, std::span<const Tensor* const> given,
                           const std::function<Tensor(const Tensor& mask)>& coordinates) {
  PerDimension indices;
  for (const Tensor* index : given) {
    if (index == nullptr || !index->defined()) {
      indices.emplace_back(std::nullopt);
      continue;
    }
    require_dtype(op, "an index", *index,
                  {Dtype::kInt64, Dtype::kInt32, Dtype::kBool, Dtype::kUint8});
    if (index->dtype() == Dtype::kBool || index->dtype() == Dtype::kUint8) {
      append_mask(op, self, *index, indices, coordinates);
    } else {
      indices.emplace_back(*index);
    }
  }
  if (indices.size() > self.sizes().size()) {
    throw ShapeError(str(op, ": ", indices.size(), " indices for ", describe(self), ", which has ",
                         self.dim(), " dimensions"));
  }
  indices.resize(self.sizes().size());
  return indices;
}

IndexPlan plan_geometry(const char* op, const Tensor& self, const PerDimension& indices,
                        Dims& block) {
  std::vector<Dims> index_sizes;
  for (const auto& index : indices) {
    if (index) index_sizes.push_back(index->sizes());
  }
  block = broadcast_sizes(op, index_sizes);
  IndexPlan plan;
  fill_sizes(plan, self, split_dimensions(indices), block);
  plan.operands.push_back(plan.self_strides);
  for (const auto& index : indices) {
    if (index) plan.operands.push_back(strides_over(*index, block, plan.block_first, plan.sizes));
  }
  return plan;
}

IndexPlan plan_index(const char* op, const Tensor& self, std::span<const Tensor* const> given,
                     const OpContext& context) {
  const PerDimension indices =
      per_dimension(op, self, given, [&](const Tensor& mask) { return nonzero(mask, context); });
  Dims block;
  IndexPlan plan = plan_geometry(op, self, indices, block);
  plan.offsets = empty(block, Dtype::kInt64, context);
  std::fill_n(plan.offsets.data_as<int64_t>(), plan.offsets.numel(), 0);
  for (size_t dim = 0; dim < indices.size(); ++dim) {
    if (!indices[dim]) continue;
    add_offsets(op, *indices[dim], plan.offsets, dim, self.size(dim), self.stride(dim), context);
  }
  return plan;
}

}  // namespace cudaexec::ops
