#include "tensor/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/inline_list.h"
#include "base/str.h"
#include "device/thread_pool.h"
#include "tensor/convert.h"
#include "tensor/rows.h"

namespace cudaexec {
namespace {

constexpr int64_t kParallelBytes = 256 * 1024;  // below this a copy stays on the calling thread
constexpr int64_t kTile = 64;                   // side of the blocks of a transposing copy
constexpr int64_t kShortRow = 8;                // rows below this are not worth blocks

struct Axis {
  int64_t size;
  int64_t dst;  // strides in bytes
  int64_t src;
};

using Axes = InlineList<Axis, Dims::kInline>;

// The copy as a loop nest: outermost first, dimensions of size 1 dropped, neighbours merged.
Axes loop_nest(const Tensor& dst, const Tensor& src) {
  const auto dst_item = static_cast<int64_t>(dst.itemsize());
  const auto src_item = static_cast<int64_t>(src.itemsize());
  Axes axes;
  const auto is_outer = [](const Axis& a, const Axis& b) {
    const int64_t a_dst = std::abs(a.dst);
    const int64_t b_dst = std::abs(b.dst);
    return a_dst != b_dst ? a_dst > b_dst : std::abs(a.src) > std::abs(b.src);
  };
  for (size_t i = 0; i < dst.sizes().size(); ++i) {
    if (dst.size(i) == 1) continue;
    axes.push_back({dst.size(i), dst.stride(i) * dst_item, src.stride(i) * src_item});
    Axis* const last = axes.end() - 1;
    std::rotate(std::upper_bound(axes.begin(), last, *last, is_outer), last, axes.end());
  }
  size_t kept = 0;
  for (size_t i = 1; i < axes.size(); ++i) {
    Axis& outer = axes[kept];
    const Axis& inner = axes[i];
    if (outer.dst == inner.dst * inner.size && outer.src == inner.src * inner.size) {
      outer = {outer.size * inner.size, inner.dst, inner.src};
    } else {
      axes[++kept] = inner;
    }
  }
  if (!axes.empty()) axes.shrink(kept + 1);
  return axes;
}

// Everything that one thread needs to copy a range of work units. A unit is one index of the outer
// axes times one block of `row`; within it the block's rows run along `inner`.
struct CopyPlan {
  Axes outer;
  Axis row{1, 0, 0};
  Axis inner{1, 0, 0};
  int64_t row_block = 1;
  int64_t inner_block = 0;
  int64_t blocks = 1;  // of `row`
  int64_t units = 1;
  RowConverter convert = nullptr;
  size_t transposed_itemsize = 0;  // 2 or 4 where blocks are transposed by a kernel
  char* dst = nullptr;
  const char* src = nullptr;
};

// A block whose rows are packed in the destination and whose columns are in the source.
void transpose_block(const CopyPlan& plan, int64_t rows, int64_t count, char* dst,
                     const char* src) {
  const auto itemsize = static_cast<int64_t>(plan.transposed_itemsize);
  const int64_t dst_stride = plan.row.dst / itemsize;
  const int64_t src_stride = plan.inner.src / itemsize;
  if (itemsize == 2) {
    row_kernels().transpose_2(reinterpret_cast<uint16_t*>(dst), dst_stride,
                              reinterpret_cast<const uint16_t*>(src), src_stride, rows, count);
  } else {
    row_kernels().transpose_4(reinterpret_cast<uint32_t*>(dst), dst_stride,
                              reinterpret_cast<const uint32_t*>(src), src_stride, rows, count);
  }
}

void copy_block(const CopyPlan& plan, int64_t first_row, char* dst, const char* src) {
  const int64_t rows = std::min(plan.row_block, plan.row.size - first_row);
  dst += first_row * plan.row.dst;
  src += first_row * plan.row.src;
  for (int64_t at = 0; at < plan.inner.size; at += plan.inner_block) {
    const int64_t count = std::min(plan.inner_block, plan.inner.size - at);
    if (plan.transposed_itemsize != 0) {
      transpose_block(plan, rows, count, dst + at * plan.inner.dst, src + at * plan.inner.src);
      continue;
    }
    for (int64_t row = 0; row < rows; ++row) {
      plan.convert(count, dst + row * plan.row.dst + at * plan.inner.dst, plan.inner.dst,
                   src + row * plan.row.src + at * plan.inner.src, plan.inner.src);
    }
  }
}

void copy_units(const CopyPlan& plan, int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t rest = unit / plan.blocks;
    char* dst = plan.dst;
    const char* src = plan.src;
    for (size_t i = plan.outer.size(); i-- > 0;) {
      const Axis& axis = plan.outer[i];
      const int64_t index = rest % axis.size;
      rest /= axis.size;
      dst += index * axis.dst;
      src += index * axis.src;
    }
    copy_block(plan, unit % plan.blocks * plan.row_block, dst, src);
  }
}

// Takes the row axis out of the outer ones and sizes the blocks.
void choose_rows(CopyPlan& plan, Axes& axes, const Tensor& dst, const Tensor& src) {
  // The row axis is the one with the smallest source stride: for a transpose it walks the source's
  // cache lines; otherwise it is the next outer axis anyway.
  Axis* row = axes.end() - 1;
  for (Axis* axis = axes.begin(); axis != axes.end(); ++axis) {
    const bool smaller = row->src == 0 || std::abs(axis->src) < std::abs(row->src);
    if (axis->src != 0 && smaller) row = axis;
  }
  const bool transposes = row->src != 0 && std::abs(row->src) < std::abs(plan.inner.src);
  Axis* const chosen = transposes ? row : axes.end() - 1;
  plan.row = *chosen;
  axes.erase(chosen);
  const auto itemsize = static_cast<int64_t>(dst.itemsize());
  if (!transposes) {
    plan.inner_block = plan.inner.size;
    plan.row_block = std::max<int64_t>(1, kParallelBytes / 4 / (plan.inner.size * itemsize));
    return;
  }
  if (plan.inner.size < kShortRow) {  // few channels: go along the long axis instead
    std::swap(plan.inner, plan.row);
    plan.inner_block = kTile * kTile;
    plan.row_block = plan.row.size;
    return;
  }
  plan.inner_block = kTile;
  plan.row_block = kTile;
  if (dst.dtype() == src.dtype() && (itemsize == 2 || itemsize == 4) &&
      plan.inner.dst == itemsize && plan.row.src == itemsize) {
    plan.transposed_itemsize = dst.itemsize();
  }
}

CopyPlan make_plan(const Tensor& dst, const Tensor& src, Axes axes) {
  CopyPlan plan;
  plan.convert = row_converter(dst.dtype(), src.dtype());
  plan.dst = dst.data_as<char>();
  plan.src = src.data_as<const char>();
  if (!axes.empty()) {
    plan.inner = axes.back();
    axes.pop_back();
  }
  if (!axes.empty()) {
    choose_rows(plan, axes, dst, src);
  } else {
    // One axis: cut it into pieces that threads can share.
    plan.inner_block = plan.inner.size;
    constexpr int64_t kPiece = 1 << 16;
    if (plan.inner.size >= 2 * kPiece) {
      const Axis whole = plan.inner;
      plan.inner = {kPiece, whole.dst, whole.src};
      plan.inner_block = kPiece;
      plan.row = {whole.size / kPiece, whole.dst * kPiece, whole.src * kPiece};
    }
  }
  plan.blocks = (plan.row.size + plan.row_block - 1) / plan.row_block;
  plan.units = plan.blocks;
  for (const Axis& axis : axes) plan.units *= axis.size;
  plan.outer = std::move(axes);
  return plan;
}

void run_copy(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  const auto bytes = static_cast<int64_t>(std::max(dst.nbytes(), src.nbytes()));
  if (bytes < kParallelBytes && dst.dtype() == src.dtype() && dst.is_contiguous() &&
      src.is_contiguous()) {
    std::memcpy(dst.data(), src.data(), dst.nbytes());
    return;
  }
  Axes axes = loop_nest(dst, src);
  const int64_t whole = axes.size() == 1 ? axes[0].size : 0;
  const Axis only = axes.size() == 1 ? axes[0] : Axis{};
  const CopyPlan plan = make_plan(dst, src, std::move(axes));
  if (bytes < kParallelBytes) {
    copy_units(plan, 0, plan.units);
  } else {
    const int64_t grain = std::max<int64_t>(1, plan.units * (kParallelBytes / 2) / bytes);
    parallel_for(plan.units, grain,
                 [&plan](int64_t begin, int64_t end) { copy_units(plan, begin, end); });
  }
  // What the equal pieces of a single axis leave over.
  if (whole != 0) {
    const int64_t done = plan.row.size * plan.inner.size;
    plan.convert(whole - done, plan.dst + done * only.dst, only.dst, plan.src + done * only.src,
                 only.src);
  }
}

void check_operands(const Tensor& dst, const Tensor& src) {
  if (!dst.defined() || !src.defined()) {
    throw InternalError("a copy between tensors of which one has no storage");
  }
  if (!(dst.sizes() == src.sizes())) {
    throw ShapeError(str("cannot copy ", describe(src), " to ", describe(dst),
                         ": the sizes differ; expected ", list_str(dst.sizes())));
  }
  if (!dst.device().is_cpu() || !src.device().is_cpu()) {
    throw DeviceError(str("a host copy needs both tensors on the cpu; source on ",
                          to_string(src.device()), ", destination on ", to_string(dst.device())));
  }
  for (size_t i = 0; i < dst.sizes().size(); ++i) {
    if (dst.size(i) > 1 && dst.stride(i) == 0) {
      throw ShapeError(str("cannot copy to ", describe(dst), ": its stride in dimension ", i,
                           " is 0, so elements share memory"));
    }
  }
}

}  // namespace

void strided_copy(const Tensor& dst, const Tensor& src) {
  check_operands(dst, src);
  if (dst.dtype() != src.dtype()) {
    throw DtypeError(str("cannot copy ", describe(src), " to ", describe(dst),
                         " without conversion: expected ", dtype_name(dst.dtype()), ", found ",
                         dtype_name(src.dtype())));
  }
  run_copy(dst, src);
}

void strided_convert(const Tensor& dst, const Tensor& src) {
  check_operands(dst, src);
  run_copy(dst, src);
}

Tensor contiguous_copy(const Tensor& src, Allocator& allocator, StreamRef stream) {
  Tensor dst = Tensor::empty(src.sizes(), src.dtype(), src.device(), allocator, stream);
  strided_copy(dst, src);
  return dst;
}

}  // namespace cudaexec
