// The GPU and the stream that generated code chooses for a scope.
#include <cstdint>
#include <memory>

#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"

namespace {

using cudaexec::CallScope;
using cudaexec::str;
using cudaexec::StreamRef;

// A program runs on the GPU that it was loaded on, whatever index it was exported with.
CallScope& gpu_scope(const char* what) {
  CallScope* scope = CallScope::current();
  if (scope == nullptr || scope->device().is_cpu()) {
    throw cudaexec::DeviceError(
        str("generated code asks for ", what, ", the call runs on ",
            cudaexec::to_string(scope != nullptr ? scope->device() : cudaexec::Device{})));
  }
  return *scope;
}

struct StreamGuard {
  StreamGuard(CallScope& call, StreamRef stream)
      : scope(call), previous(call.exchange_stream(stream)) {}
  ~StreamGuard() { scope.exchange_stream(previous); }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  CallScope& scope;
  StreamRef previous;
};

}  // namespace

// The handles of c_shim_cuda.h, opaque to generated code.
struct CUDAGuardOpaque {
  cudaexec::CudaGuard guard;
};
struct CUDAStreamGuardOpaque {
  StreamGuard guard;
};

CUDAEXEC_SHIM int32_t aoti_torch_create_cuda_guard(int32_t /*device_index*/,
                                                   CUDAGuardOpaque** result) {
  CUDAEXEC_SHIM_BEGIN
  cudaexec::CudaDevice& gpu = cudaexec::cuda_device(gpu_scope("a GPU").device().index);
  *result = new CUDAGuardOpaque{cudaexec::CudaGuard(gpu)};  // freed by the function below
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_delete_cuda_guard(CUDAGuardOpaque* guard) {
  delete guard;  // must not fail: a destructor calls it
  return 0;
}

CUDAEXEC_SHIM int32_t aoti_torch_cuda_guard_set_index(CUDAGuardOpaque* /*guard*/,
                                                      int32_t /*device_index*/) {
  CUDAEXEC_SHIM_BEGIN(void) gpu_scope("another GPU");
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_create_cuda_stream_guard(void* stream, int32_t /*device_index*/,
                                                          CUDAStreamGuardOpaque** result) {
  CUDAEXEC_SHIM_BEGIN
  CallScope& scope = gpu_scope("a stream");
  *result = new CUDAStreamGuardOpaque{StreamGuard(scope, StreamRef(stream))};
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardOpaque* guard) {
  delete guard;
  return 0;
}

CUDAEXEC_SHIM int32_t aoti_torch_get_current_cuda_stream(int32_t /*device_index*/, void** result) {
  CUDAEXEC_SHIM_BEGIN
  *result = gpu_scope("the current stream").stream().get();
  CUDAEXEC_SHIM_END
}
