#include "ops/pool.h"

#include <algorithm>
#include <limits>

#include "ops/pool_plan.h"
#include "ops/sort_keys.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

Windows sliding_windows(const char* op, const PoolWindow& window, const PoolPlan& plan) {
  Windows windows{whole_axis(), whole_axis(), whole_axis()};
  for (size_t i = 0; i < plan.rank; ++i) {
    const size_t axis = 3 - plan.rank + i;
    windows[axis] = sliding_axis(op, window, i, plan.rank, plan.size[axis]);
  }
  return windows;
}

Windows adaptive_windows(const char* op, std::span<const int64_t> output, const PoolPlan& plan) {
  Windows windows{whole_axis(), whole_axis(), whole_axis()};
  for (size_t i = 0; i < plan.rank; ++i) {
    const size_t axis = 3 - plan.rank + i;
    windows[axis] = adaptive_axis(op, plan.size[axis], output[i]);
  }
  return windows;
}

template <typename T>
void max_plane(const T* input, const Windows& windows, const std::array<int64_t, 3>& size,
               T* values, int64_t* indices) {
  for_windows(windows, [&](const std::array<size_t, 3>& window, int64_t at) {
    bool first = true;
    T best{};
    int64_t best_at = 0;
    for_elements(windows, window, size, [&](int64_t position) {
      const T value = input[position];
      if (first || value > best || is_nan(value)) {
        best = value;
        best_at = position;
      }
      first = false;
    });
    values[at] = best;
    indices[at] = best_at;
  });
}

// `windows_of(plane)` gives the windows of a plane.
template <typename WindowsOf>
std::pair<Tensor, Tensor> max_over(const PoolPlan& plan, const OpContext& context,
                                   WindowsOf windows_of) {
  const Tensor values = empty(plan.out_sizes, plan.input.dtype(), context);
  const Tensor indices = empty(plan.out_sizes, Dtype::kInt64, context);
  const int64_t places = plan.planes == 0 ? 0 : values.numel() / plan.planes;
  dispatch_dtype(plan.input.dtype(), [&]<typename T>(T) {
    for_planes(plan, [&](int64_t plane) {
      max_plane(plan.input.data_as<const T>() + plane * plan.volume(), windows_of(plane), plan.size,
                values.data_as<T>() + plane * places, indices.data_as<int64_t>() + plane * places);
    });
  });
  return {in_format(plan, values, context), in_format(plan, indices, context)};
}

}  // namespace

std::pair<Tensor, Tensor> max_pool(const Tensor& self, size_t rank, const PoolWindow& window,
                                   const OpContext& context) {
  PoolPlan plan = plan_pool("max_pool", self, rank, context);
  const Windows windows = sliding_windows("max_pool", window, plan);
  set_output(plan, windows);
  return max_over(plan, context, [&](int64_t) -> const Windows& { return windows; });
}

Tensor avg_pool(const Tensor& self, size_t rank, const PoolWindow& window, bool count_include_pad,
                std::optional<int64_t> divisor, const OpContext& context) {
  if (divisor == 0) throw InputError("avg_pool: divisor_override is 0");
  PoolPlan plan = plan_pool("avg_pool", self, rank, context);
  const Windows windows = sliding_windows("avg_pool", window, plan);
  set_output(plan, windows);
  return average(plan, windows, {count_include_pad, divisor}, context);
}

Tensor adaptive_avg_pool(const Tensor& self, std::span<const int64_t> output,
                         const OpContext& context) {
  PoolPlan plan = plan_pool("adaptive_avg_pool", self, output.size(), context);
  const Windows windows = adaptive_windows("adaptive_avg_pool", output, plan);
  set_output(plan, windows);
  return average(plan, windows, {}, context);
}

std::pair<Tensor, Tensor> adaptive_max_pool(const Tensor& self, std::span<const int64_t> output,
                                            const OpContext& context) {
  PoolPlan plan = plan_pool("adaptive_max_pool", self, output.size(), context);
  if (plan.rank == 3) plan.format = MemoryFormat::kContiguous;
  const Windows windows = adaptive_windows("adaptive_max_pool", output, plan);
  set_output(plan, windows);
  return max_over(plan, context, [&](int64_t) -> const Windows& { return windows; });
}

namespace {

// Starts as in Graham, "Fractional max-pooling" (2014): steps of (size - kernel) / (output - 1),
// shifted by the sample; the last window ends with the input.
template <typename C>
AxisWindows fractional_axis(int64_t size, int64_t kernel, int64_t output, C sample) {
  AxisWindows axis;
  const C alpha = output > 1 ? static_cast<C>(size - kernel) / static_cast<C>(output - 1) : C{};
  const auto shift = static_cast<int64_t>(sample * alpha);
  for (int64_t i = 0; i < output; ++i) {
    const int64_t start = i == output - 1
                              ? size - kernel
                              : static_cast<int64_t>((static_cast<C>(i) + sample) * alpha) - shift;
    axis.start.push_back(std::clamp<int64_t>(start, 0, size - kernel));
    axis.end.push_back(axis.start.back() + kernel);
    axis.padded.push_back(kernel);
  }
  return axis;
}

}  // namespace

std::pair<Tensor, Tensor> fractional_max_pool(const Tensor& self, std::span<const int64_t> kernel,
                                              std::span<const int64_t> output,
                                              const Tensor& samples, const OpContext& context) {
  constexpr const char* kOp = "fractional_max_pool";
  const size_t rank = output.size();
  require_same_dtype(kOp, "self", self, "random_samples", samples);
  require_floating(kOp, "self", self);
  PoolPlan plan = plan_pool(kOp, self, rank, context);
  plan.format = MemoryFormat::kContiguous;
  const size_t first = plan.out_sizes.size() - rank;
  std::array<int64_t, 3> kernels{1, 1, 1};
  std::array<int64_t, 3> outputs{1, 1, 1};
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = 3 - rank + i;
    kernels[axis] = pool_setting(kOp, "kernel_size", kernel, i, rank, 0, 1);
    outputs[axis] = pool_setting(kOp, "output_size", output, i, rank, 0, 1);
    if (outputs[axis] + kernels[axis] - 1 > plan.size[axis]) {
      throw ShapeError(str(kOp, ": kernel_size ", kernels[axis], " and output_size ", outputs[axis],
                           " do not fit size ", plan.size[axis]));
    }
    plan.out_sizes[first + i] = outputs[axis];
  }
  const Tensor packed = contiguous_as(samples, Dtype::kFloat64, context);
  if (packed.dim() != 3 || packed.size(2) != static_cast<int64_t>(rank) ||
      packed.size(0) * packed.size(1) != plan.planes) {
    throw ShapeError(str(kOp, ": random_samples ", describe(samples), " for self ", describe(self),
                         "; expected [batch, channels, ", rank, "]"));
  }
  const auto* sample = packed.data_as<const double>();
  const bool wide = self.dtype() == Dtype::kFloat64;
  return max_over(plan, context, [&](int64_t plane) {
    Windows windows{whole_axis(), whole_axis(), whole_axis()};
    for (size_t i = 0; i < rank; ++i) {
      const size_t axis = 3 - rank + i;
      // Two dimensions: the samples are of width, then height.
      const size_t column = rank == 2 ? 1 - i : i;
      const double value = sample[static_cast<size_t>(plane) * rank + column];
      windows[axis] = wide ? fractional_axis(plan.size[axis], kernels[axis], outputs[axis], value)
                           : fractional_axis(plan.size[axis], kernels[axis], outputs[axis],
                                             static_cast<float>(value));
    }
    return windows;
  });
}

Tensor max_unpool(const Tensor& self, const Tensor& indices, std::span<const int64_t> output,
                  const OpContext& context) {
  constexpr const char* kOp = "max_unpool";
  require_dtype(kOp, "indices", indices, {Dtype::kInt64});
  if (!(self.sizes() == indices.sizes())) {
    throw ShapeError(str(kOp, ": self ", describe(self), " and indices ", describe(indices),
                         "; expected equal sizes"));
  }
  const size_t rank = output.size();
  PoolPlan plan = plan_pool(kOp, self, rank, context);
  if (rank == 3) plan.format = MemoryFormat::kContiguous;
  const size_t first = plan.out_sizes.size() - rank;
  int64_t limit = 1;
  for (size_t i = 0; i < rank; ++i) limit *= plan.out_sizes[first + i] = output[i];
  const Tensor places = contiguous(indices, context);
  const Tensor result = empty(plan.out_sizes, self.dtype(), context);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    std::fill_n(result.data_as<T>(), result.numel(), T{});
    for_planes(plan, [&](int64_t plane) {
      const T* from = plan.input.data_as<const T>() + plane * plan.volume();
      const int64_t* place = places.data_as<const int64_t>() + plane * plan.volume();
      T* to = result.data_as<T>() + plane * limit;
      for (int64_t i = 0; i < plan.volume(); ++i) {
        if (place[i] < 0 || place[i] >= limit) {
          throw InputError(str(kOp, ": index ", place[i], "; expected 0 to ", limit - 1));
        }
        to[place[i]] = from[i];
      }
    });
  });
  return in_format(plan, result, context);
}

}  // namespace cudaexec::ops
