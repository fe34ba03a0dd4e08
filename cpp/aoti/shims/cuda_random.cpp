// Random numbers that generated GPU code calls out for: seeds of its own generators, mostly.
#include <algorithm>

#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/cuda/random.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::RandomState;
using cudaexec::Tensor;
using cudaexec::tensor_from;
namespace gpu = cudaexec::gpu;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_randint_low_out(AtenTensorHandle out, int64_t low,
                                                      int64_t high, const int64_t* size,
                                                      int64_t size_len_) {
  CUDAEXEC_SHIM_BEGIN
  const Tensor& target = tensor_from(out);
  const auto sizes = shims::int_list(size, size_len_);
  if (!std::equal(sizes.begin(), sizes.end(), target.sizes().begin(), target.sizes().end())) {
    throw cudaexec::ShapeError(cudaexec::str("randint: out is ", describe(target),
                                             "; expected sizes ", cudaexec::list_str(sizes)));
  }
  gpu::fill_integers(target, low, high, RandomState::current(), current_op_context());
  CUDAEXEC_SHIM_END
}
