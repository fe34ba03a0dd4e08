// Sorting and selection by order: what generated GPU code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/sort.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_sort(AtenTensorHandle self, int64_t dim, int32_t descending,
                                           AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = gpu::sort(tensor_from(self), dim, descending != 0, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

// Every sort is stable, so `stable` asks for nothing more.
CUDAEXEC_SHIM int32_t aoti_torch_cuda_sort_stable(AtenTensorHandle self, int32_t* /*stable*/,
                                                  int64_t dim, int32_t descending,
                                                  AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = gpu::sort(tensor_from(self), dim, descending != 0, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

// Results are always sorted; sorted=False leaves the order open.
CUDAEXEC_SHIM int32_t aoti_torch_cuda_topk(AtenTensorHandle self, int64_t k, int64_t dim,
                                           int32_t largest, int32_t /*sorted*/,
                                           AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] = gpu::topk(tensor_from(self), k, dim, largest != 0, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_kthvalue(AtenTensorHandle self, int64_t k, int64_t dim,
                                               int32_t keepdim, AtenTensorHandle* ret0,
                                               AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [values, indices] =
      gpu::kthvalue(tensor_from(self), k, dim, keepdim != 0, current_op_context());
  shims::give({ret0, ret1}, std::move(values), std::move(indices));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_median(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::median(tensor_from(self), false, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_nanmedian(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::median(tensor_from(self), true, current_op_context()));
  CUDAEXEC_SHIM_END
}
