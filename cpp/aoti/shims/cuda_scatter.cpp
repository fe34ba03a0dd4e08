// Scatter and its reductions: what generated GPU code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/scatter.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_scatter_src_out(AtenTensorHandle out, AtenTensorHandle self,
                                                      int64_t dim, AtenTensorHandle index,
                                                      AtenTensorHandle src) {
  CUDAEXEC_SHIM_BEGIN
  gpu::scatter(tensor_from(out), tensor_from(self), dim, tensor_from(index), tensor_from(src),
               current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_scatter_value_out(AtenTensorHandle out, AtenTensorHandle self,
                                                        int64_t dim, AtenTensorHandle index,
                                                        double value) {
  CUDAEXEC_SHIM_BEGIN
  gpu::scatter_value(tensor_from(out), tensor_from(self), dim, tensor_from(index), value,
                     current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_scatter_reduce_two_out(
    AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
    AtenTensorHandle src, const char* reduce, int32_t include_self) {
  CUDAEXEC_SHIM_BEGIN
  gpu::scatter_reduce(tensor_from(out), tensor_from(self), dim, tensor_from(index),
                      tensor_from(src), reduce, include_self != 0, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_index_reduce(AtenTensorHandle self, int64_t dim,
                                                   AtenTensorHandle index, AtenTensorHandle source,
                                                   const char* reduce, int32_t include_self,
                                                   AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              gpu::index_reduce(tensor_from(self), dim, tensor_from(index), tensor_from(source),
                                reduce, include_self != 0, current_op_context()));
  CUDAEXEC_SHIM_END
}
