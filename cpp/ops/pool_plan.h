// What all kinds of pooling share: planes, the windows along each dimension, and the result.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "device/thread_pool.h"
#include "ops/op_context.h"
#include "ops/operand.h"
#include "ops/pool.h"

namespace cudaexec::ops {

/// The windows along one dimension: window i covers start[i], start[i] + step, ... below end[i].
struct AxisWindows {
  std::vector<int64_t> start, end;
  std::vector<int64_t> padded;  // length of window i with the padding it reaches into
  int64_t step = 1;
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(start.size()); }
};

/// Planes are treated as volumes of depth 1.
using Windows = std::array<AxisWindows, 3>;

struct PoolPlan {
  size_t rank = 2;
  Tensor self;                    // as it was given
  Tensor input;                   // contiguous
  std::array<int64_t, 3> size{};  // of an input volume
  int64_t planes = 1;             // batch * channels
  Dims out_sizes;                 // of the result
  MemoryFormat format = MemoryFormat::kContiguous;
  [[nodiscard]] int64_t volume() const { return size[0] * size[1] * size[2]; }
};

/// Checks rank and sizes, makes the input contiguous.
PoolPlan plan_pool(const char* op, const Tensor& self, size_t rank, const OpContext& context);
/// Sets out_sizes from the windows.
void set_output(PoolPlan& plan, const Windows& windows);

/// Value `at` of a list of one value or `rank` values; `fallback` if the list is empty.
/// @throws InputError for another length or a value below `least`.
int64_t pool_setting(const char* op, const char* name, std::span<const int64_t> values, size_t at,
                     size_t rank, int64_t fallback, int64_t least);
/// Windows along dimension `at` of `rank`, which is `size` long. @throws InputError, ShapeError.
AxisWindows sliding_axis(const char* op, const PoolWindow& window, size_t at, size_t rank,
                         int64_t size);

/// Windows over depth 1, for the dimension that planes lack.
AxisWindows whole_axis();

/// Windows that divide `size` evenly into `output` places.
AxisWindows adaptive_axis(const char* op, int64_t size, int64_t output);

struct Divisor {
  bool count_include_pad = false;
  std::optional<int64_t> fixed;  // replaces the number of elements
};
/// Means over the windows; in two dimensions in the plan's memory format.
Tensor average(const PoolPlan& plan, const Windows& windows, const Divisor& divisor,
               const OpContext& context);

/// `result` (contiguous) in the plan's memory format.
Tensor in_format(const PoolPlan& plan, const Tensor& result, const OpContext& context);

// Calls visit(window, out_position) for every window of the volume, row-major.
template <typename Visit>
void for_windows(const Windows& windows, Visit visit) {
  int64_t at = 0;
  for (size_t d = 0; d < windows[0].start.size(); ++d) {
    for (size_t h = 0; h < windows[1].start.size(); ++h) {
      for (size_t w = 0; w < windows[2].start.size(); ++w) visit(std::array{d, h, w}, at++);
    }
  }
}

// Calls visit(position) for the elements of one window, row-major.
template <typename Visit>
void for_elements(const Windows& windows, const std::array<size_t, 3>& window,
                  const std::array<int64_t, 3>& size, Visit visit) {
  const auto& [depth, height, width] = windows;
  for (int64_t d = depth.start[window[0]]; d < depth.end[window[0]]; d += depth.step) {
    for (int64_t h = height.start[window[1]]; h < height.end[window[1]]; h += height.step) {
      const int64_t line = (d * size[1] + h) * size[2];
      for (int64_t w = width.start[window[2]]; w < width.end[window[2]]; w += width.step) {
        visit(line + w);
      }
    }
  }
}

// Runs body(plane) for all planes.
template <typename Body>
void for_planes(const PoolPlan& plan, Body body) {
  parallel_for(plan.planes, std::max<int64_t>(1, kGrain / plan.volume()),
               [&](int64_t begin, int64_t end) {
                 for (int64_t plane = begin; plane < end; ++plane) body(plane);
               });
}

}  // namespace cudaexec::ops
