// Pooling: what generated GPU code calls. Inductor generates the small windows itself.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/pool.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

namespace {

struct IntList {
  const int64_t* values;
  int64_t count;
  operator std::span<const int64_t>() const { return shims::int_list(values, count); }
};

void give_max_pool(AtenTensorHandle self, size_t rank, IntList kernel, IntList stride,
                   IntList padding, IntList dilation, bool ceil_mode,
                   const std::array<AtenTensorHandle*, 2>& results) {
  const ops::PoolWindow window{kernel, stride, padding, dilation, ceil_mode};
  auto [values, indices] =
      cudaexec::gpu::max_pool(tensor_from(self), rank, window, current_op_context());
  shims::give(results, std::move(values), std::move(indices));
}

void give_avg_pool(AtenTensorHandle self, size_t rank, IntList kernel, IntList stride,
                   IntList padding, bool ceil_mode, bool count_include_pad, const int64_t* divisor,
                   AtenTensorHandle* result) {
  const ops::PoolWindow window{kernel, stride, padding, {}, ceil_mode};
  shims::give({result},
              cudaexec::gpu::avg_pool(tensor_from(self), rank, window, count_include_pad,
                                      shims::optional_value(divisor), current_op_context()));
}

// A size list of the expected length.
std::span<const int64_t> sizes(const char* op, IntList list, size_t rank) {
  if (list.count != static_cast<int64_t>(rank)) {
    throw cudaexec::InputError(
        cudaexec::str(op, ": output_size has ", list.count, " values; expected ", rank));
  }
  return list;
}

void give_adaptive_max(AtenTensorHandle self, IntList output, size_t rank,
                       const std::array<AtenTensorHandle*, 2>& results) {
  auto [values, indices] = cudaexec::gpu::adaptive_max_pool(
      tensor_from(self), sizes("adaptive_max_pool", output, rank), current_op_context());
  shims::give(results, std::move(values), std::move(indices));
}

}  // namespace

CUDAEXEC_SHIM int32_t aoti_torch_cuda_max_pool2d_with_indices(
    AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  give_max_pool(self, 2, {kernel_size, kernel_size_len_}, {stride, stride_len_},
                {padding, padding_len_}, {dilation, dilation_len_}, ceil_mode != 0, {ret0, ret1});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_max_pool3d_with_indices(
    AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  give_max_pool(self, 3, {kernel_size, kernel_size_len_}, {stride, stride_len_},
                {padding, padding_len_}, {dilation, dilation_len_}, ceil_mode != 0, {ret0, ret1});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_avg_pool2d(AtenTensorHandle self, const int64_t* kernel_size,
                                                 int64_t kernel_size_len_, const int64_t* stride,
                                                 int64_t stride_len_, const int64_t* padding,
                                                 int64_t padding_len_, int32_t ceil_mode,
                                                 int32_t count_include_pad,
                                                 int64_t* divisor_override,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_avg_pool(self, 2, {kernel_size, kernel_size_len_}, {stride, stride_len_},
                {padding, padding_len_}, ceil_mode != 0, count_include_pad != 0, divisor_override,
                ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_avg_pool3d(AtenTensorHandle self, const int64_t* kernel_size,
                                                 int64_t kernel_size_len_, const int64_t* stride,
                                                 int64_t stride_len_, const int64_t* padding,
                                                 int64_t padding_len_, int32_t ceil_mode,
                                                 int32_t count_include_pad,
                                                 int64_t* divisor_override,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_avg_pool(self, 3, {kernel_size, kernel_size_len_}, {stride, stride_len_},
                {padding, padding_len_}, ceil_mode != 0, count_include_pad != 0, divisor_override,
                ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda__adaptive_avg_pool2d(AtenTensorHandle self,
                                                           const int64_t* output_size,
                                                           int64_t output_size_len_,
                                                           AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto output = sizes("adaptive_avg_pool2d", {output_size, output_size_len_}, 2);
  shims::give({ret0},
              cudaexec::gpu::adaptive_avg_pool(tensor_from(self), output, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda__adaptive_avg_pool3d(AtenTensorHandle self,
                                                           const int64_t* output_size,
                                                           int64_t output_size_len_,
                                                           AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto output = sizes("adaptive_avg_pool3d", {output_size, output_size_len_}, 3);
  shims::give({ret0},
              cudaexec::gpu::adaptive_avg_pool(tensor_from(self), output, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_adaptive_max_pool2d(AtenTensorHandle self,
                                                          const int64_t* output_size,
                                                          int64_t output_size_len_,
                                                          AtenTensorHandle* ret0,
                                                          AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  give_adaptive_max(self, {output_size, output_size_len_}, 2, {ret0, ret1});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_adaptive_max_pool3d(AtenTensorHandle self,
                                                          const int64_t* output_size,
                                                          int64_t output_size_len_,
                                                          AtenTensorHandle* ret0,
                                                          AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  give_adaptive_max(self, {output_size, output_size_len_}, 3, {ret0, ret1});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda__int_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                  AtenTensorHandle mat2) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::gpu::int_mm_out(tensor_from(out), tensor_from(self), tensor_from(mat2),
                            current_op_context());
  CUDAEXEC_SHIM_END
}
