// Embedding bags and grid sampling: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/embedding.h"
#include "ops/grid.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

namespace {

struct BagArguments {
  AtenTensorHandle weight, indices, offsets;
  int64_t mode;
  AtenTensorHandle* per_sample_weights;
  bool include_last_offset;
  int64_t padding_idx;
};

void run_bag(const BagArguments& arguments, bool forward_only,
             const std::array<AtenTensorHandle*, 4>& results) {
  if (arguments.mode < 0 || arguments.mode > 2) {
    throw cudaexec::InputError(
        cudaexec::str("embedding_bag: mode ", arguments.mode, "; expected 0, 1 or 2"));
  }
  ops::EmbeddingBagOptions options;
  options.mode = static_cast<ops::BagMode>(arguments.mode);
  options.per_sample_weights = shims::optional_tensor(arguments.per_sample_weights);
  options.include_last_offset = arguments.include_last_offset;
  options.padding_idx = arguments.padding_idx;
  options.forward_only = forward_only;
  auto [bags, bag_of, sizes, maxima] =
      ops::embedding_bag(tensor_from(arguments.weight), tensor_from(arguments.indices),
                         tensor_from(arguments.offsets), options, current_op_context());
  shims::give(results, std::move(bags), std::move(bag_of), std::move(sizes), std::move(maxima));
}

}  // namespace

// scale_grad_by_freq and sparse are about gradients.
CUDAEXEC_SHIM int32_t aoti_torch_cpu__embedding_bag(
    AtenTensorHandle weight, AtenTensorHandle indices, AtenTensorHandle offsets,
    int32_t /*scale_grad_by_freq*/, int64_t mode, int32_t /*sparse*/,
    AtenTensorHandle* per_sample_weights, int32_t include_last_offset, int64_t padding_idx,
    AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2,
    AtenTensorHandle* ret3) {
  CUDAEXEC_SHIM_BEGIN
  run_bag(
      {weight, indices, offsets, mode, per_sample_weights, include_last_offset != 0, padding_idx},
      false, {ret0, ret1, ret2, ret3});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu__embedding_bag_forward_only(
    AtenTensorHandle weight, AtenTensorHandle indices, AtenTensorHandle offsets,
    int32_t /*scale_grad_by_freq*/, int64_t mode, int32_t /*sparse*/,
    AtenTensorHandle* per_sample_weights, int32_t include_last_offset, int64_t padding_idx,
    AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2,
    AtenTensorHandle* ret3) {
  CUDAEXEC_SHIM_BEGIN
  run_bag(
      {weight, indices, offsets, mode, per_sample_weights, include_last_offset != 0, padding_idx},
      true, {ret0, ret1, ret2, ret3});
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_grid_sampler_3d(AtenTensorHandle input, AtenTensorHandle grid,
                                                     int64_t interpolation_mode,
                                                     int64_t padding_mode, int32_t align_corners,
                                                     AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::grid_sampler_3d(tensor_from(input), tensor_from(grid),
                                           static_cast<ops::Interpolation>(interpolation_mode),
                                           static_cast<ops::GridPadding>(padding_mode),
                                           align_corners != 0, current_op_context()));
  CUDAEXEC_SHIM_END
}
