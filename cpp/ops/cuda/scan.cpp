#include "ops/cuda/scan.h"

#include "base/str.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/scan_args.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

Tensor scan(const char* op, const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
            const OpContext& context) {
  CudaDevice& device = common_device(op, {{"self", &self}});
  const auto at = static_cast<size_t>(ops::wrap_dim(op, dim, self.dim()));
  const Dtype wanted =
      dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : Dtype::kInt64);
  // Running sums of integers are int64; other integer results are narrowed afterwards.
  const Dtype summed = is_floating_point(wanted) ? wanted : Dtype::kInt64;
  Tensor source = is_floating_point(wanted) ? convert(device, self, wanted, context) : self;
  if (!is_floating_point(wanted) && wanted != Dtype::kInt64) {
    source = convert(device, self, wanted, context);
  } else if (!is_floating_point(wanted) && is_floating_point(self.dtype())) {
    source = convert(device, self, Dtype::kInt64, context);
  }
  const Tensor packed = contiguous(device, dim_last(source, at), context);
  Tensor result = empty(device, self.sizes(), summed, context);
  if (result.numel() == 0) return convert(device, result, wanted, context);
  const Tensor target = dim_last(result, at);
  const Tensor sums =
      target.is_contiguous() ? target : empty(device, target.sizes(), summed, context);
  const int64_t length = packed.size(packed.sizes().size() - 1);
  const cuda::ScanArgs args{packed.data(), sums.data(), length};
  launch(device, "scan", str("cudaexec_", op, "_", dtype_name(packed.dtype())), args,
         packed.numel() / length, context.stream);
  if (!target.is_contiguous()) copy(device, target, sums, context.stream);
  return convert(device, result, wanted, context);
}

/// Runs a kernel over the columns along `dim`; `indices` may be null.
Tensor scan_columns(const char* op, const Tensor& self, int64_t dim, int64_t* indices,
                    const OpContext& context) {
  CudaDevice& device = common_device(op, {{"self", &self}});
  const ops::Split split = ops::split_at(self.sizes(), ops::wrap_dim(op, dim, self.dim()));
  const Tensor packed = contiguous(device, self, context);
  Tensor result = empty(device, self.sizes(), self.dtype(), context);
  if (result.numel() == 0) return result;
  const cuda::ScanColumnsArgs args{packed.data(), result.data(), indices, split.outer * split.inner,
                                   split.count,   split.inner};
  launch(device, "scan", str("cudaexec_", op, "_", dtype_name(self.dtype())), args,
         blocks_for(args.columns), context.stream);
  return result;
}

std::pair<Tensor, Tensor> extreme(const char* op, const Tensor& self, int64_t dim,
                                  const OpContext& context) {
  CudaDevice& device = common_device(op, {{"self", &self}});
  Tensor indices = empty(device, self.sizes(), Dtype::kInt64, context);
  Tensor values = scan_columns(op, self, dim, indices.data_as<int64_t>(), context);
  return {std::move(values), std::move(indices)};
}

}  // namespace

Tensor logcumsumexp(const Tensor& self, int64_t dim, const OpContext& context) {
  ops::require_floating("logcumsumexp", "self", self);
  return scan_columns("logcumsumexp", self, dim, nullptr, context);
}

std::pair<Tensor, Tensor> cummax(const Tensor& self, int64_t dim, const OpContext& context) {
  return extreme("cummax", self, dim, context);
}

std::pair<Tensor, Tensor> cummin(const Tensor& self, int64_t dim, const OpContext& context) {
  return extreme("cummin", self, dim, context);
}

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
              const OpContext& context) {
  return scan("cumsum", self, dim, dtype, context);
}

Tensor cumprod(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
               const OpContext& context) {
  return scan("cumprod", self, dim, dtype, context);
}

}  // namespace cudaexec::gpu
