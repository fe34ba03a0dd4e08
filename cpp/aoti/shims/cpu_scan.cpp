// Running sums, products and extremes: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/scan.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                            AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::cumsum(tensor_from(self), dim, shims::optional_dtype(dtype),
                                  current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                             AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::cumprod(tensor_from(self), dim, shims::optional_dtype(dtype),
                                   current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_logcumsumexp(AtenTensorHandle self, int64_t dim,
                                                  AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::logcumsumexp(tensor_from(self), dim, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_cummax(AtenTensorHandle self, int64_t dim,
                                            AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = ops::cummax(tensor_from(self), dim, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_cummin(AtenTensorHandle self, int64_t dim,
                                            AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = ops::cummin(tensor_from(self), dim, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}
