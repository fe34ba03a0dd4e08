#include "device/cuda/strided_copy_plan.h"

#include <algorithm>
#include <cstdlib>

#include "device/cuda/kernel_args.h"

namespace cudaexec {
namespace {

constexpr int64_t kMinTransposed = 16;  // elements of a dimension for tiles to pay

/// Puts dimensions in the order of dst's memory and joins those that are one run in both.
std::vector<StridedDim> merge(std::vector<StridedDim> dims) {
  std::erase_if(dims, [](const StridedDim& dim) { return dim.size == 1; });
  std::stable_sort(dims.begin(), dims.end(), [](const StridedDim& a, const StridedDim& b) {
    if (a.dst_stride != b.dst_stride) return std::abs(a.dst_stride) > std::abs(b.dst_stride);
    return std::abs(a.src_stride) > std::abs(b.src_stride);
  });
  std::vector<StridedDim> merged;
  for (const StridedDim& inner : dims) {
    if (!merged.empty()) {
      StridedDim& outer = merged.back();
      if (outer.dst_stride == inner.size * inner.dst_stride &&
          outer.src_stride == inner.size * inner.src_stride) {
        outer = {outer.size * inner.size, inner.dst_stride, inner.src_stride};
        continue;
      }
    }
    merged.push_back(inner);
  }
  return merged;
}

/// Moves several elements of a run at once where run, strides and addresses allow it.
void widen(StridedPlan& plan, uintptr_t dst, uintptr_t src) {
  StridedDim& inner = plan.dims.back();
  const auto item = static_cast<int64_t>(plan.itemsize);
  if (inner.dst_stride != item || inner.src_stride != item) return;
  const int64_t nbytes = inner.size * item;
  for (int64_t wide = 16; wide > item; wide /= 2) {
    const bool fits =
        nbytes % wide == 0 && (dst | src) % static_cast<uintptr_t>(wide) == 0 &&
        std::all_of(plan.dims.begin(), plan.dims.end() - 1, [wide](const StridedDim& dim) {
          return dim.dst_stride % wide == 0 && dim.src_stride % wide == 0;
        });
    if (!fits) continue;
    plan.itemsize = static_cast<size_t>(wide);
    inner = {nbytes / wide, wide, wide};
    return;
  }
}

/// The dimension that is contiguous in src, if tiles are the better way.
bool find_transposed(StridedPlan& plan) {
  const auto item = static_cast<int64_t>(plan.itemsize);
  const StridedDim& inner = plan.dims.back();
  if (inner.dst_stride != item || inner.src_stride == item || inner.size < kMinTransposed ||
      plan.dims.size() > cuda::kMaxKernelRank + 2) {
    return false;
  }
  for (size_t i = 0; i + 1 < plan.dims.size(); ++i) {
    if (plan.dims[i].src_stride == item && plan.dims[i].size >= kMinTransposed) {
      plan.transposed = i;
      return true;
    }
  }
  return false;
}

}  // namespace

StridedPlan plan_strided_copy(std::vector<StridedDim> dims, size_t itemsize, uintptr_t dst,
                              uintptr_t src) {
  StridedPlan plan;
  plan.itemsize = itemsize;
  if (std::any_of(dims.begin(), dims.end(), [](const StridedDim& dim) { return dim.size == 0; })) {
    return plan;
  }
  plan.dims = merge(std::move(dims));
  const auto item = static_cast<int64_t>(itemsize);
  if (plan.dims.empty()) plan.dims = {{1, item, item}};
  if (plan.dims.size() == 1 && plan.dims[0].dst_stride == item && plan.dims[0].src_stride == item) {
    plan.method = StridedPlan::Method::kFlat;
    return plan;
  }
  if (find_transposed(plan)) {
    plan.method = StridedPlan::Method::kTranspose;
    return plan;
  }
  plan.method = StridedPlan::Method::kElements;
  widen(plan, dst, src);
  return plan;
}

}  // namespace cudaexec
