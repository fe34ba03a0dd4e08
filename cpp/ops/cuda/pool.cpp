#include "ops/cuda/pool.h"

#include <array>
#include <limits>

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pool_args.h"
#include "ops/operand.h"
#include "ops/pool_plan.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "pool";

/// A pooling on its way to the GPU.
struct Pool {
  CudaDevice& device;
  const char* op;
  const Tensor& self;
  size_t rank;
  cuda::PoolArgs args{};
  Dims sizes;  // of the result
};

Pool make_pool(const char* op, const Tensor& self, size_t rank) {
  CudaDevice& device = common_device(op, {{"self", &self}});
  const size_t dims = self.sizes().size();
  if (dims != rank + 1 && dims != rank + 2) {
    throw ShapeError(str(op, ": self is ", describe(self), "; expected ", rank + 1, " or ",
                         rank + 2, " dimensions"));
  }
  Pool pool{device, op, self, rank, {}, self.sizes()};
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = self.size(dims - rank + i);
    if (size == 0 || size > std::numeric_limits<int32_t>::max()) {
      throw ShapeError(
          str(op, ": self is ", describe(self), "; expected pooled sizes from 1 to 2147483647"));
    }
    pool.args.axes[3 - rank + i].size = static_cast<int32_t>(size);
  }
  return pool;
}

void slide(Pool& pool, const ops::PoolWindow& window) {
  for (size_t i = 0; i < pool.rank; ++i) {
    cuda::PoolAxis& axis = pool.args.axes[3 - pool.rank + i];
    const auto value = [&](const char* name, std::span<const int64_t> values, int64_t fallback,
                           int64_t least) {
      return static_cast<int32_t>(
          ops::pool_setting(pool.op, name, values, i, pool.rank, fallback, least));
    };
    axis.out =
        static_cast<int32_t>(ops::sliding_axis(pool.op, window, i, pool.rank, axis.size).count());
    axis.kernel = value("kernel_size", window.kernel, 0, 1);
    axis.stride = value("stride", window.stride, axis.kernel, 1);
    axis.padding = value("padding", window.padding, 0, 0);
    axis.dilation = value("dilation", window.dilation, 1, 1);
    pool.sizes[pool.sizes.size() - pool.rank + i] = axis.out;
  }
}

void divide(Pool& pool, std::span<const int64_t> output) {
  for (size_t i = 0; i < pool.rank; ++i) {
    cuda::PoolAxis& axis = pool.args.axes[3 - pool.rank + i];
    axis.out = static_cast<int32_t>(ops::adaptive_axis(pool.op, axis.size, output[i]).count());
    axis.adaptive = 1;
    pool.sizes[pool.sizes.size() - pool.rank + i] = axis.out;
  }
}

/// Strides as of [outer, channel, D, H, W].
void put_strides(int64_t (&to)[5], const Tensor& t, size_t rank) {
  const size_t first = t.sizes().size() - rank;
  to[0] = first == 2 ? t.stride(0) : 0;
  to[1] = t.stride(first - 1);
  for (size_t i = 0; i < rank; ++i) to[5 - rank + i] = t.stride(first + i);
}

Tensor make_result(const Pool& pool, bool keep_format, Dtype dtype, const OpContext& context) {
  const Dims strides = keep_format ? ops::strides_in(ops::memory_format(pool.self), pool.sizes)
                                   : contiguous_strides(pool.sizes);
  return empty_strided(pool.device, pool.sizes, strides, dtype, context);
}

void run(Pool& pool, const char* kernel, const Tensor& values, StreamRef stream) {
  put_strides(pool.args.in_strides, pool.self, pool.rank);
  put_strides(pool.args.out_strides, values, pool.rank);
  pool.args.input = pool.self.data();
  pool.args.values = values.data();
  pool.args.count = values.numel();
  pool.args.channels = pool.sizes[pool.sizes.size() - pool.rank - 1];
  launch(pool.device, kImage, str(kernel, dtype_name(pool.self.dtype())), pool.args,
         blocks_for(pool.args.count), stream);
}

std::pair<Tensor, Tensor> maxima(Pool& pool, bool keep_format, const OpContext& context) {
  if (pool.self.dtype() == Dtype::kBool) throw DtypeError(str(pool.op, ": bool has no maxima"));
  Tensor values = make_result(pool, keep_format, pool.self.dtype(), context);
  Tensor indices = make_result(pool, keep_format, Dtype::kInt64, context);
  pool.args.indices = indices.data_as<int64_t>();
  run(pool, "cudaexec_max_pool_", values, context.stream);
  return {std::move(values), std::move(indices)};
}

/// In three dimensions the result is contiguous whatever the input is, as torch's.
Tensor means(Pool& pool, const OpContext& context) {
  ops::require_floating(pool.op, "self", pool.self);
  Tensor values = make_result(pool, pool.rank == 2, pool.self.dtype(), context);
  run(pool, "cudaexec_avg_pool_", values, context.stream);
  return values;
}

}  // namespace

std::pair<Tensor, Tensor> max_pool(const Tensor& self, size_t rank, const ops::PoolWindow& window,
                                   const OpContext& context) {
  Pool pool = make_pool("max_pool", self, rank);
  slide(pool, window);
  return maxima(pool, true, context);
}

Tensor avg_pool(const Tensor& self, size_t rank, const ops::PoolWindow& window,
                bool count_include_pad, std::optional<int64_t> divisor, const OpContext& context) {
  if (divisor == 0) throw InputError("avg_pool: divisor_override is 0");
  Pool pool = make_pool("avg_pool", self, rank);
  slide(pool, window);
  pool.args.count_include_pad = count_include_pad;
  pool.args.divisor = divisor.value_or(0);
  return means(pool, context);
}

Tensor adaptive_avg_pool(const Tensor& self, std::span<const int64_t> output,
                         const OpContext& context) {
  Pool pool = make_pool("adaptive_avg_pool", self, output.size());
  divide(pool, output);
  return means(pool, context);
}

std::pair<Tensor, Tensor> adaptive_max_pool(const Tensor& self, std::span<const int64_t> output,
                                            const OpContext& context) {
  Pool pool = make_pool("adaptive_max_pool", self, output.size());
  divide(pool, output);
  return maxima(pool, pool.rank == 2, context);
}

void int_mm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  constexpr const char* kOp = "_int_mm";
  CudaDevice& device = common_device(kOp, {{"out", &out}, {"a", &a}, {"b", &b}});
  ops::require_dtype(kOp, "a", a, {Dtype::kInt8});
  ops::require_dtype(kOp, "b", b, {Dtype::kInt8});
  ops::require_dtype(kOp, "out", out, {Dtype::kInt32});
  for (const auto& [name, t] : {NamedTensor("out", &out), {"a", &a}, {"b", &b}}) {
    ops::require_rank(kOp, name, *t, 2);
  }
  if (b.size(0) != a.size(1) || !(out.sizes() == Dims{a.size(0), b.size(1)})) {
    throw ShapeError(str(kOp, ": out ", describe(out), ", a ", describe(a), " and b ", describe(b),
                         " do not fit"));
  }
  cuda::IntegerProductArgs args{};
  args.a = a.data_as<const int8_t>();
  args.b = b.data_as<const int8_t>();
  args.out = out.data_as<int32_t>();
  args.m = a.size(0);
  args.n = b.size(1);
  args.k = a.size(1);
  for (size_t i = 0; i < 2; ++i) {
    args.a_strides[i] = a.stride(i);
    args.b_strides[i] = b.stride(i);
    args.out_strides[i] = out.stride(i);
  }
  args.row_tiles = blocks_for(args.m, cuda::kIntegerTile);
  launch(device, kImage, "cudaexec_integer_product", args,
         args.row_tiles * blocks_for(args.n, cuda::kIntegerTile), context.stream,
         cuda::kIntegerTile * cuda::kIntegerTile);
}

}  // namespace cudaexec::gpu
