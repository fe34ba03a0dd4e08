// Advanced indexing and masks: what generated GPU code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/index.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_index_Tensor(AtenTensorHandle self,
                                                   const AtenTensorHandle** indices,
                                                   int64_t indices_len_, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(indices, indices_len_);
  shims::give({ret0}, gpu::index(tensor_from(self), list, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_index_put(AtenTensorHandle self,
                                                const AtenTensorHandle** indices,
                                                int64_t indices_len_, AtenTensorHandle values,
                                                int32_t accumulate, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(indices, indices_len_);
  const auto context = current_op_context();
  const cudaexec::Tensor& old = tensor_from(self);
  cudaexec::CudaDevice& device = gpu::common_device("index_put", {{"self", &old}});
  cudaexec::Tensor result = gpu::clone(device, old, context);
  gpu::index_put(result, list, tensor_from(values), accumulate != 0, context);
  shims::give({ret0}, std::move(result));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_nonzero(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::nonzero(tensor_from(self), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_nonzero_static(AtenTensorHandle self, int64_t size,
                                                     int64_t fill_value, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              gpu::nonzero_static(tensor_from(self), size, fill_value, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_masked_select(AtenTensorHandle self, AtenTensorHandle mask,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              gpu::masked_select(tensor_from(self), tensor_from(mask), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_masked_scatter(AtenTensorHandle self, AtenTensorHandle mask,
                                                     AtenTensorHandle source,
                                                     AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, gpu::masked_scatter(tensor_from(self), tensor_from(mask), tensor_from(source),
                                          current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_repeat_interleave_Tensor(AtenTensorHandle repeats,
                                                               int64_t* output_size,
                                                               AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              gpu::repeat_interleave(tensor_from(repeats), output_size, current_op_context()));
  CUDAEXEC_SHIM_END
}
