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

}  // namespace

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
              const OpContext& context) {
  return scan("cumsum", self, dim, dtype, context);
}

Tensor cumprod(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
               const OpContext& context) {
  return scan("cumprod", self, dim, dtype, context);
}

}  // namespace cudaexec::gpu
