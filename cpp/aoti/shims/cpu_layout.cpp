// Views, joins and padding: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/layout.h"
#include "ops/operand.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::Tensor;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_permute(AtenTensorHandle self, const int64_t* dims,
                                             int64_t dims_len_, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::permute(tensor_from(self), shims::int_list(dims, dims_len_)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_squeeze_dim(AtenTensorHandle self, int64_t dim,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::squeeze(tensor_from(self), dim));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_narrow(AtenTensorHandle self, int64_t dim, int64_t start,
                                            int64_t length, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::narrow(tensor_from(self), dim, start, length));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_slice_Tensor(AtenTensorHandle self, int64_t dim,
                                                  int64_t* start, int64_t* end, int64_t step,
                                                  AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::slice(tensor_from(self), dim, shims::optional_value(start),
                                 shims::optional_value(end), step));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_view_dtype(AtenTensorHandle self, int32_t dtype,
                                                AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::view_dtype(tensor_from(self), *shims::optional_dtype(&dtype)));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_reshape(AtenTensorHandle self, const int64_t* shape,
                                             int64_t shape_len_, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::reshape(tensor_from(self), shims::int_list(shape, shape_len_),
                                   current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_cat(const AtenTensorHandle* tensors, int64_t tensors_len_,
                                         int64_t dim, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto list = shims::tensor_list(tensors, tensors_len_);
  shims::give({ret0}, ops::cat(list, dim, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_pad(AtenTensorHandle self, const int64_t* pad,
                                         int64_t pad_len_, const char* mode, double* value,
                                         AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::pad(tensor_from(self), shims::int_list(pad, pad_len_), mode,
                               value == nullptr ? 0.0 : *value, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_fill__Scalar(AtenTensorHandle self, double value) {
  CUDAEXEC_SHIM_BEGIN
  ops::fill(tensor_from(self), value);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_set__source_Tensor(AtenTensorHandle self,
                                                        AtenTensorHandle source) {
  CUDAEXEC_SHIM_BEGIN
  Tensor replacement = tensor_from(source);
  tensor_from(self) = std::move(replacement);
  CUDAEXEC_SHIM_END
}
