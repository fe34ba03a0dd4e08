// Embedding bags: what generated GPU code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/embedding.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

namespace {

struct BagArguments {
  AtenTensorHandle weight, indices, offsets;
  int64_t mode;
  AtenTensorHandle* per_sample_weights;
  bool include_last_offset;
  int64_t padding_idx;
};

void run_bag(const BagArguments& arguments, const std::array<AtenTensorHandle*, 4>& results) {
  if (arguments.mode < 0 || arguments.mode > 2) {
    throw cudaexec::InputError(
        cudaexec::str("embedding_bag: mode ", arguments.mode, "; expected 0, 1 or 2"));
  }
  cudaexec::ops::EmbeddingBagOptions options;
  options.mode = static_cast<cudaexec::ops::BagMode>(arguments.mode);
  options.per_sample_weights = shims::optional_tensor(arguments.per_sample_weights);
  options.include_last_offset = arguments.include_last_offset;
  options.padding_idx = arguments.padding_idx;
  auto [bags, bag_of, sizes, maxima] =
      gpu::embedding_bag(tensor_from(arguments.weight), tensor_from(arguments.indices),
                         tensor_from(arguments.offsets), options, current_op_context());
  shims::give(results, std::move(bags), std::move(bag_of), std::move(sizes), std::move(maxima));
}

}  // namespace

// scale_grad_by_freq and sparse are about gradients.
CUDAEXEC_SHIM int32_t aoti_torch_cuda__embedding_bag(
    AtenTensorHandle weight, AtenTensorHandle indices, AtenTensorHandle offsets,
    int32_t /*scale_grad_by_freq*/, int64_t mode, int32_t /*sparse*/,
    AtenTensorHandle* per_sample_weights, int32_t include_last_offset, int64_t padding_idx,
    AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2,
    AtenTensorHandle* ret3) {
  CUDAEXEC_SHIM_BEGIN
  run_bag(
      {weight, indices, offsets, mode, per_sample_weights, include_last_offset != 0, padding_idx},
      {ret0, ret1, ret2, ret3});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda__embedding_bag_forward_only(
    AtenTensorHandle weight, AtenTensorHandle indices, AtenTensorHandle offsets,
    int32_t /*scale_grad_by_freq*/, int64_t mode, int32_t /*sparse*/,
    AtenTensorHandle* per_sample_weights, int32_t include_last_offset, int64_t padding_idx,
    AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2,
    AtenTensorHandle* ret3) {
  CUDAEXEC_SHIM_BEGIN
  run_bag(
      {weight, indices, offsets, mode, per_sample_weights, include_last_offset != 0, padding_idx},
      {ret0, ret1, ret2, ret3});
  CUDAEXEC_SHIM_END
}
