// Attention over the runtime's KV cache: what generated code calls for cudaexec::kv_attend.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "ops/cuda/kv_attention.h"
#include "ops/kv_attention.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::KvStep;
using cudaexec::new_handle;
using cudaexec::tensor_from;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_kv_attend(AtenTensorHandle q, AtenTensorHandle k,
                                               AtenTensorHandle v, AtenTensorHandle index,
                                               int64_t layer, double scale,
                                               AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::ops::kv_attention(KvStep::current(), tensor_from(q), tensor_from(k),
                                                 tensor_from(v), tensor_from(index), layer, scale,
                                                 current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_kv_attend(AtenTensorHandle q, AtenTensorHandle k,
                                                AtenTensorHandle v, AtenTensorHandle index,
                                                int64_t layer, double scale,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  *ret0 = new_handle(cudaexec::gpu::kv_attention(KvStep::current(), tensor_from(q), tensor_from(k),
                                                 tensor_from(v), tensor_from(index), layer, scale,
                                                 current_op_context()));
  CUDAEXEC_SHIM_END
}
