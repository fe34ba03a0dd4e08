// Advanced indexing and masks: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/index.h"
#include "ops/index.h"
#include "ops/operand.h"
#include "tensor/strided_copy.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_index_Tensor(AtenTensorHandle self,
                                                  const AtenTensorHandle** indices,
                                                  int64_t indices_len_, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(indices, indices_len_);
  shims::give({ret0}, ops::index(tensor_from(self), list, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self,
                                               const AtenTensorHandle* indices,
                                               const uint32_t num_indices,
                                               const AtenTensorHandle values, bool accumulate) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(indices, num_indices);
  const cudaexec::Tensor& target = tensor_from(out);
  if (!target.device().is_cpu()) {
    const auto context = current_op_context();
    const cudaexec::Tensor& old = tensor_from(self);
    auto& device = cudaexec::gpu::common_device("index_put", {{"out", &target}, {"self", &old}});
    if (target.data() != old.data()) {
      cudaexec::gpu::copy(device, target, old, context.stream);
    }
    cudaexec::gpu::index_put(target, list, tensor_from(values), accumulate, context);
    return 0;
  }
  if (target.data() != tensor_from(self).data()) cudaexec::strided_copy(target, tensor_from(self));
  ops::index_put(target, list, tensor_from(values), accumulate, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_index_put(AtenTensorHandle self,
                                               const AtenTensorHandle** indices,
                                               int64_t indices_len_, AtenTensorHandle values,
                                               int32_t accumulate, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(indices, indices_len_);
  const auto context = current_op_context();
  cudaexec::Tensor result = ops::clone(tensor_from(self), context);
  ops::index_put(result, list, tensor_from(values), accumulate != 0, context);
  shims::give({ret0}, std::move(result));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::nonzero(tensor_from(self), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_nonzero_static(AtenTensorHandle self, int64_t size,
                                                    int64_t fill_value, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              ops::nonzero_static(tensor_from(self), size, fill_value, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_masked_select(AtenTensorHandle self, AtenTensorHandle mask,
                                                   AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              ops::masked_select(tensor_from(self), tensor_from(mask), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_masked_scatter(AtenTensorHandle self, AtenTensorHandle mask,
                                                    AtenTensorHandle source,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::masked_scatter(tensor_from(self), tensor_from(mask), tensor_from(source),
                                          current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_repeat_interleave_Tensor(AtenTensorHandle repeats,
                                                              int64_t* output_size,
                                                              AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              ops::repeat_interleave(tensor_from(repeats), output_size, current_op_context()));
  CUDAEXEC_SHIM_END
}
