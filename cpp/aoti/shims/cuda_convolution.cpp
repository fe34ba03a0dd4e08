// Convolutions that generated GPU code calls out to.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/convolution.h"

using cudaexec::AtenTensorHandle;
using cudaexec::tensor_from;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride,
    int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation,
    int64_t dilation_len_, int32_t transposed, const int64_t* output_padding,
    int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::ConvolutionOptions options;
  options.stride = shims::int_list(stride, stride_len_);
  options.padding = shims::int_list(padding, padding_len_);
  options.dilation = shims::int_list(dilation, dilation_len_);
  options.transposed = transposed != 0;
  options.output_padding = shims::int_list(output_padding, output_padding_len_);
  options.groups = groups;
  shims::give({ret0}, cudaexec::gpu::convolution(tensor_from(input), tensor_from(weight),
                                                 shims::optional_tensor(bias), options,
                                                 cudaexec::current_op_context()));
  CUDAEXEC_SHIM_END
}
