// Views that generated GPU code leaves to the runtime.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/layout.h"

using cudaexec::AtenTensorHandle;
using cudaexec::tensor_from;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cuda_view_dtype(AtenTensorHandle self, int32_t dtype,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, cudaexec::ops::view_dtype(tensor_from(self), *shims::optional_dtype(&dtype)));
  CUDAEXEC_SHIM_END
}
