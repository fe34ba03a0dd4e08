#include "device/cuda/handles.h"

#include "base/cleanup_report.h"
#include "device/cuda/check.h"

namespace cudaexec::cuda {
namespace {

/// A process that is ending has given its GPU objects back already.
bool is_failure(CUresult result) noexcept {
  return result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED;
}

void report(const char* call, CUresult result) noexcept {
  try {
    report_cleanup_failure(call, describe_result(result));
  } catch (...) {  // no memory for the reason
    report_cleanup_failure(call, {});
  }
}

}  // namespace

ContextGuard::ContextGuard(CUcontext context) { CUDAEXEC_CU(cuCtxPushCurrent, context); }

ContextGuard::~ContextGuard() {
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr) return;
  CUcontext popped = nullptr;
  if (const CUresult result = api->cuCtxPopCurrent(&popped); is_failure(result)) {
    report("cuCtxPopCurrent", result);
  }
}

void handle_detail::destroy(CUcontext context, uint64_t handle, Destroyer destroy,
                            const char* call) noexcept {
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr) return;
  if (const CUresult result = api->cuCtxPushCurrent(context); result != CUDA_SUCCESS) {
    if (is_failure(result)) report(call, result);
    return;
  }
  const CUresult result = destroy(*api, handle);
  CUcontext popped = nullptr;
  const CUresult restored = api->cuCtxPopCurrent(&popped);
  if (is_failure(result)) report(call, result);
  if (is_failure(restored)) report("cuCtxPopCurrent", restored);
}

}  // namespace cudaexec::cuda
