// Matrix products that generated code calls out to.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "ops/matmul.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::new_handle;
using cudaexec::tensor_from;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                            AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::mm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                        current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                               AtenTensorHandle mat1, AtenTensorHandle mat2,
                                               double beta, double alpha) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::addmm_out(tensor_from(out), tensor_from(self), tensor_from(mat1),
                           tensor_from(mat2), beta, alpha, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                             AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::bmm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                         current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                 AtenTensorHandle batch1, AtenTensorHandle batch2,
                                                 double beta, double alpha) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::baddbmm_out(tensor_from(out), tensor_from(self), tensor_from(batch1),
                             tensor_from(batch2), beta, alpha, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu__int_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                 AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::int_mm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                            current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_addmv(AtenTensorHandle self, AtenTensorHandle mat,
                                           AtenTensorHandle vec, double beta, double alpha,
                                           AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::ops::addmv(tensor_from(self), tensor_from(mat), tensor_from(vec),
                                          beta, alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_addbmm(AtenTensorHandle self, AtenTensorHandle batch1,
                                            AtenTensorHandle batch2, double beta, double alpha,
                                            AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::ops::addbmm(tensor_from(self), tensor_from(batch1),
                                           tensor_from(batch2), beta, alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}
