#include "ops/pool_plan.h"

#include "tensor/strided_copy.h"

namespace cudaexec::ops {

PoolPlan plan_pool(const char* op, const Tensor& self, size_t rank, const OpContext& context) {
  const size_t dims = self.sizes().size();
  if (dims != rank + 1 && dims != rank + 2) {
    throw ShapeError(str(op, ": self is ", describe(self), "; expected ", rank + 1, " or ",
                         rank + 2, " dimensions"));
  }
  PoolPlan plan;
  plan.rank = rank;
  plan.format = memory_format(self);
  plan.size = {1, 1, 1};
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = self.size(dims - rank + i);
    if (size == 0) {
      throw ShapeError(str(op, ": self is ", describe(self), "; expected pooled sizes above 0"));
    }
    plan.size[3 - rank + i] = size;
  }
  for (size_t i = 0; i < dims - rank; ++i) plan.planes *= self.size(i);
  plan.out_sizes = self.sizes();
  plan.self = self;
  plan.input = contiguous(self, context);
  return plan;
}

void set_output(PoolPlan& plan, const Windows& windows) {
  const size_t first = plan.out_sizes.size() - plan.rank;
  for (size_t i = 0; i < plan.rank; ++i) {
    plan.out_sizes[first + i] = windows[3 - plan.rank + i].count();
  }
}

int64_t pool_setting(const char* op, const char* name, std::span<const int64_t> values, size_t at,
                     size_t rank, int64_t fallback, int64_t least) {
  if (values.empty()) return fallback;
  if (values.size() != 1 && values.size() != rank) {
    throw InputError(
        str(op, ": ", name, " ", list_str(values), "; expected 1 or ", rank, " values"));
  }
  const int64_t value = values[values.size() == 1 ? 0 : at];
  if (value < least) {
    throw InputError(str(op, ": ", name, " ", list_str(values), "; expected ", least, " or more"));
  }
  return value;
}

AxisWindows sliding_axis(const char* op, const PoolWindow& window, size_t at, size_t rank,
                         int64_t size) {
  const int64_t kernel = pool_setting(op, "kernel_size", window.kernel, at, rank, 0, 1);
  const int64_t stride = pool_setting(op, "stride", window.stride, at, rank, kernel, 1);
  const int64_t padding = pool_setting(op, "padding", window.padding, at, rank, 0, 0);
  const int64_t dilation = pool_setting(op, "dilation", window.dilation, at, rank, 1, 1);
  if (kernel == 0) throw InputError(str(op, ": kernel_size is empty"));
  if (padding > ((kernel - 1) * dilation + 1) / 2) {
    throw InputError(str(op, ": padding ", padding, " exceeds half of the kernel size ", kernel));
  }
  const int64_t reach = dilation * (kernel - 1) + 1;
  const int64_t room = size + 2 * padding - reach;
  int64_t count =
      room < 0 && !window.ceil_mode ? 0 : (room + (window.ceil_mode ? stride - 1 : 0)) / stride + 1;
  // The last window of ceil_mode has to start inside the input or its left padding.
  if (window.ceil_mode && (count - 1) * stride >= size + padding) --count;
  if (count <= 0) {
    throw ShapeError(str(op, ": size ", size, " gives no output for kernel_size ", kernel,
                         ", stride ", stride, ", padding ", padding, ", dilation ", dilation));
  }
  AxisWindows axis;
  axis.step = dilation;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = i * stride - padding;
    const int64_t skipped = start < 0 ? (-start + dilation - 1) / dilation * dilation : 0;
    axis.start.push_back(start + skipped);
    axis.end.push_back(std::min(start + reach, size));
    axis.padded.push_back(std::min(start + kernel, size + padding) - start);
  }
  return axis;
}

AxisWindows whole_axis() { return {{0}, {1}, {1}, 1}; }

AxisWindows adaptive_axis(const char* op, int64_t size, int64_t output) {
  if (output < 0) throw InputError(str(op, ": output size ", output, "; expected 0 or more"));
  AxisWindows axis;
  for (int64_t i = 0; i < output; ++i) {
    const int64_t start = i * size / output;
    const int64_t end = ((i + 1) * size + output - 1) / output;
    axis.start.push_back(start);
    axis.end.push_back(end);
    axis.padded.push_back(end - start);
  }
  return axis;
}

Tensor in_format(const PoolPlan& plan, const Tensor& result, const OpContext& context) {
  if (plan.format == MemoryFormat::kContiguous) return result;
  Tensor out = empty_strided(result.sizes(), strides_in(plan.format, result.sizes()),
                             result.dtype(), context);
  strided_copy(out, result);
  return out;
}

}  // namespace cudaexec::ops
