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
