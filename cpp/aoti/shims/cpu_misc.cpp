// Element-wise operators and those of no larger family: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/misc.h"
#include "ops/pointwise.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_abs(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::abs(tensor_from(self), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_angle(AtenTensorHandle self, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::angle(tensor_from(self), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_add_Tensor(AtenTensorHandle self, AtenTensorHandle other,
                                                double alpha, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::add(tensor_from(self), tensor_from(other), alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_add_Scalar(AtenTensorHandle self, double other, double alpha,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::add(tensor_from(self), other, alpha, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_mul_Tensor(AtenTensorHandle self, AtenTensorHandle other,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::mul(tensor_from(self), tensor_from(other), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_mul_Scalar(AtenTensorHandle self, double other,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::mul(tensor_from(self), other, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_pow_Tensor_Tensor(AtenTensorHandle self,
                                                       AtenTensorHandle exponent,
                                                       AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::pow(tensor_from(self), tensor_from(exponent), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_pow_Tensor_Scalar(AtenTensorHandle self, double exponent,
                                                       AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::pow(tensor_from(self), exponent, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_pow_Scalar(double self, AtenTensorHandle exponent,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::pow(self, tensor_from(exponent), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_gcd(AtenTensorHandle self, AtenTensorHandle other,
                                         AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::gcd(tensor_from(self), tensor_from(other), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_hann_window(int64_t window_length, int32_t* dtype,
                                                 int32_t* /*layout*/, int32_t* device,
                                                 int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::require_cpu(device);
  const auto type = shims::optional_dtype(dtype).value_or(cudaexec::Dtype::kFloat32);
  shims::give({ret0}, ops::hann_window(window_length, type, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu__fused_rms_norm(
    AtenTensorHandle input, const int64_t* normalized_shape, int64_t normalized_shape_len_,
    AtenTensorHandle* weight, double* eps, AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  auto [output, roots] = ops::rms_norm(
      tensor_from(input), shims::int_list(normalized_shape, normalized_shape_len_),
      shims::optional_tensor(weight), shims::optional_value(eps), current_op_context());
  shims::give({ret0, ret1}, std::move(output), std::move(roots));
  CUDAEXEC_SHIM_END
}

// How torch orders its loops (`unroll_dim`) is of no interest here.
CUDAEXEC_SHIM int32_t aoti_torch_cpu__trilinear(AtenTensorHandle i1, AtenTensorHandle i2,
                                                AtenTensorHandle i3, const int64_t* expand1,
                                                int64_t expand1_len_, const int64_t* expand2,
                                                int64_t expand2_len_, const int64_t* expand3,
                                                int64_t expand3_len_, const int64_t* sumdim,
                                                int64_t sumdim_len_, int64_t /*unroll_dim*/,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::trilinear({tensor_from(i1), shims::int_list(expand1, expand1_len_)},
                                     {tensor_from(i2), shims::int_list(expand2, expand2_len_)},
                                     {tensor_from(i3), shims::int_list(expand3, expand3_len_)},
                                     shims::int_list(sumdim, sumdim_len_), current_op_context()));
  CUDAEXEC_SHIM_END
}
