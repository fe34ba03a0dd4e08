// What all kinds of pooling share: planes, the windows along each dimension, and the result.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "ops/op_context.h"
#include "ops/operand.h"

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

/// Windows over depth 1, for the dimension that planes lack.
AxisWindows whole_axis();

/// Windows that divide `size` evenly into `output` places.
AxisWindows adaptive_axis(const char* op, int64_t size, int64_t output);

/// `result` (contiguous) in the plan's memory format.
Tensor in_format(const PoolPlan& plan, const Tensor& result, const OpContext& context);

}  // namespace cudaexec::ops
