// Scatter and its reductions: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/misc.h"
#include "ops/scatter.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_scatter_src_out(AtenTensorHandle, AtenTensorHandle, int64_t,
                                                      AtenTensorHandle, AtenTensorHandle);
CUDAEXEC_SHIM int32_t aoti_torch_cuda_scatter_reduce_two_out(AtenTensorHandle, AtenTensorHandle,
                                                             int64_t, AtenTensorHandle,
                                                             AtenTensorHandle, const char*,
                                                             int32_t);

CUDAEXEC_SHIM int32_t aoti_torch_cpu_scatter_src_out(AtenTensorHandle out, AtenTensorHandle self,
                                                     int64_t dim, AtenTensorHandle index,
                                                     AtenTensorHandle src) {
  CUDAEXEC_SHIM_BEGIN
  ops::scatter(tensor_from(out), tensor_from(self), dim, tensor_from(index), tensor_from(src),
               current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_scatter_out(AtenTensorHandle out, AtenTensorHandle self,
                                             int64_t dim, AtenTensorHandle index,
                                             AtenTensorHandle src) {
  return tensor_from(out).device().is_cpu()
             ? aoti_torch_cpu_scatter_src_out(out, self, dim, index, src)
             : aoti_torch_cuda_scatter_src_out(out, self, dim, index, src);
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_scatter_value_out(AtenTensorHandle out, AtenTensorHandle self,
                                                       int64_t dim, AtenTensorHandle index,
                                                       double value) {
  CUDAEXEC_SHIM_BEGIN
  ops::scatter_value(tensor_from(out), tensor_from(self), dim, tensor_from(index), value,
                     current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_scatter_reduce_two_out(
    AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
    AtenTensorHandle src, const char* reduce, int32_t include_self) {
  CUDAEXEC_SHIM_BEGIN
  ops::scatter_reduce(tensor_from(out), tensor_from(self), dim, tensor_from(index),
                      tensor_from(src), reduce, include_self != 0, current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_scatter_reduce_out(AtenTensorHandle out, AtenTensorHandle self,
                                                    int64_t dim, AtenTensorHandle index,
                                                    AtenTensorHandle src, const char* reduce,
                                                    int32_t include_self) {
  return tensor_from(out).device().is_cpu() ? aoti_torch_cpu_scatter_reduce_two_out(
                                                  out, self, dim, index, src, reduce, include_self)
                                            : aoti_torch_cuda_scatter_reduce_two_out(
                                                  out, self, dim, index, src, reduce, include_self);
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_index_reduce(AtenTensorHandle self, int64_t dim,
                                                  AtenTensorHandle index, AtenTensorHandle source,
                                                  const char* reduce, int32_t include_self,
                                                  AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0},
              ops::index_reduce(tensor_from(self), dim, tensor_from(index), tensor_from(source),
                                reduce, include_self != 0, current_op_context()));
  CUDAEXEC_SHIM_END
}

// `unsafe` would skip checks of the lengths; they are always made. `indices` has no meaning in
// torch.
CUDAEXEC_SHIM int32_t aoti_torch_cpu_segment_reduce(AtenTensorHandle data, const char* reduce,
                                                    AtenTensorHandle* lengths,
                                                    AtenTensorHandle* /*indices*/,
                                                    AtenTensorHandle* offsets, int64_t axis,
                                                    int32_t /*unsafe*/, double* initial,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  ops::SegmentOptions options;
  options.reduce = reduce;
  options.lengths = shims::optional_tensor(lengths);
  options.offsets = shims::optional_tensor(offsets);
  options.axis = axis;
  options.initial = shims::optional_value(initial);
  shims::give({ret0}, ops::segment_reduce(tensor_from(data), options, current_op_context()));
  CUDAEXEC_SHIM_END
}
