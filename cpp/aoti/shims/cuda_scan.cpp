// Running sums and products: what generated GPU code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/scan.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_cumsum(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                             AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::cumsum(tensor_from(self), dim, shims::optional_dtype(dtype),
                                  current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_cumprod(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                              AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::cumprod(tensor_from(self), dim, shims::optional_dtype(dtype),
                                   current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_logcumsumexp(AtenTensorHandle self, int64_t dim,
                                                   AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::logcumsumexp(tensor_from(self), dim, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_cummax(AtenTensorHandle self, int64_t dim,
                                             AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = gpu::cummax(tensor_from(self), dim, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_cummin(AtenTensorHandle self, int64_t dim,
                                             AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = gpu::cummin(tensor_from(self), dim, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}
