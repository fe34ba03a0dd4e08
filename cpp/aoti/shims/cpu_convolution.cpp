// Convolutions that generated code calls out to.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "ops/convolution.h"

using cudaexec::AtenTensorHandle;
using cudaexec::tensor_from;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride,
    int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation,
    int64_t dilation_len_, int32_t transposed, const int64_t* output_padding,
    int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::ops::ConvolutionOptions options;
  options.stride = {stride, static_cast<size_t>(stride_len_)};
  options.padding = {padding, static_cast<size_t>(padding_len_)};
  options.dilation = {dilation, static_cast<size_t>(dilation_len_)};
  options.transposed = transposed != 0;
  options.output_padding = {output_padding, static_cast<size_t>(output_padding_len_)};
  options.groups = groups;
  const cudaexec::Tensor* bias_tensor = bias != nullptr ? &tensor_from(*bias) : nullptr;
  *ret0 = cudaexec::new_handle(cudaexec::ops::convolution(tensor_from(input), tensor_from(weight),
                                                          bias_tensor, options,
                                                          cudaexec::current_op_context()));
  CUDAEXEC_SHIM_END
}
