// Attention that generated code calls out to.
#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"
#include "ops/attention.h"

using cudaexec::AtenTensorHandle;
using cudaexec::new_handle;
using cudaexec::tensor_from;

CUDAEXEC_SHIM int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p,
    int32_t is_causal, AtenTensorHandle* attn_mask, double* scale, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  if (dropout_p != 0.0) {
    throw cudaexec::NotSupported(cudaexec::str("scaled dot product attention: dropout_p is ",
                                               dropout_p, "; expected 0, as in evaluation mode"));
  }
  cudaexec::ops::AttentionOptions options;
  options.causal = is_causal != 0;
  if (attn_mask != nullptr) options.mask = &tensor_from(*attn_mask);
  if (scale != nullptr) options.scale = *scale;
  auto [out, log_sums] =
      cudaexec::ops::attention(tensor_from(query), tensor_from(key), tensor_from(value), options,
                               cudaexec::current_op_context());
  AtenTensorHandle first = new_handle(std::move(out));
  try {
    *ret1 = new_handle(std::move(log_sums));
  } catch (...) {
    cudaexec::delete_handle(first);
    throw;
  }
  *ret0 = first;
  CUDAEXEC_SHIM_END
}
