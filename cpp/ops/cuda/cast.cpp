#include "ops/cuda/cast_args.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"

namespace cudaexec::gpu {

Tensor convert(CudaDevice& device, const Tensor& tensor, Dtype dtype, const OpContext& context) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor packed = contiguous(device, tensor, context);
  Tensor result = empty(device, tensor.sizes(), dtype, context);
  const cuda::CastArgs args{packed.data(), result.data(), packed.numel(),
                            static_cast<int32_t>(tensor.dtype()), static_cast<int32_t>(dtype)};
  launch(device, "cast", "cudaexec_cast", args, blocks_for(args.count), context.stream);
  return result;
}

}  // namespace cudaexec::gpu
