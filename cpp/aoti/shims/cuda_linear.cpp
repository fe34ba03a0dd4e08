// Matrix products that generated GPU code calls out to.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "ops/cuda/matmul.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::new_handle;
using cudaexec::tensor_from;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                             AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::gpu::mm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                        current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_addmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                AtenTensorHandle mat1, AtenTensorHandle mat2,
                                                double beta, double alpha) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::gpu::addmm_out(tensor_from(out), tensor_from(self), tensor_from(mat1),
                           tensor_from(mat2), beta, alpha, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_bmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                              AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::gpu::bmm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                         current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                  AtenTensorHandle batch1, AtenTensorHandle batch2,
                                                  double beta, double alpha) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::gpu::baddbmm_out(tensor_from(out), tensor_from(self), tensor_from(batch1),
                             tensor_from(batch2), beta, alpha, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_addmv(AtenTensorHandle self, AtenTensorHandle mat,
                                            AtenTensorHandle vec, double beta, double alpha,
                                            AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::gpu::addmv(tensor_from(self), tensor_from(mat), tensor_from(vec),
                                          beta, alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_addbmm(AtenTensorHandle self, AtenTensorHandle batch1,
                                             AtenTensorHandle batch2, double beta, double alpha,
                                             AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::gpu::addbmm(tensor_from(self), tensor_from(batch1),
                                           tensor_from(batch2), beta, alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}
