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

CUDAEXEC_SHIM int32_t aoti_torch_cuda_randperm(int64_t n, int32_t* dtype, int32_t* /*layout*/,
                                               int32_t* /*device*/, int32_t /*device_index*/,
                                               int32_t* /*pin_memory*/, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const cudaexec::CallScope* scope = cudaexec::CallScope::current();
  if (scope == nullptr || scope->device().is_cpu()) {
    throw cudaexec::DeviceError(
        "randperm: a GPU's random order is asked for outside of a GPU call");
  }
  shims::give({ret0}, gpu::randperm(cudaexec::cuda_device(scope->device().index), n,
                                    shims::optional_dtype(dtype).value_or(cudaexec::Dtype::kInt64),
                                    RandomState::current(), current_op_context()));
  CUDAEXEC_SHIM_END
}
