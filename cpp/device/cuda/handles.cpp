#include "device/cuda/handles.h"

#include "base/cleanup_report.h"
#include "device/cuda/check.h"

namespace cudaexec::cuda {
namespace {

/// A failure is reported and tried again: the caller's context matters more than the reason.
void pop_context(const DriverApi& api) noexcept {
  CUcontext popped = nullptr;
  const CUresult result = api.cuCtxPopCurrent(&popped);
  if (result == CUDA_SUCCESS) return;
  report_cleanup_result("cuCtxPopCurrent", result);
  api.cuCtxPopCurrent(&popped);
}

}  // namespace

void report_cleanup_result(const char* call, CUresult result) noexcept {
  // A process that is ending has given its GPU objects back already.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  try {
    report_cleanup_failure(call, describe_result(result));
  } catch (...) {  // no memory for the reason
    report_cleanup_failure(call, {});
  }
}

ContextGuard::ContextGuard(CUcontext context) { CUDAEXEC_CU(cuCtxPushCurrent, context); }

ContextGuard::~ContextGuard() {
  if (const DriverApi* api = driver_if_initialised(); api != nullptr) pop_context(*api);
}

CleanupContext::CleanupContext(CUcontext context, const char* call) noexcept {
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr) return;
  const CUresult result = api->cuCtxPushCurrent(context);
  if (result == CUDA_SUCCESS) driver_ = api;
  report_cleanup_result(call, result);
}

CleanupContext::~CleanupContext() {
  if (driver_ != nullptr) pop_context(*driver_);
}

void handle_detail::destroy(CUcontext context, uint64_t handle, Destroyer destroy,
                            const char* call) noexcept {
  const CleanupContext current(context, call);
  if (current.driver() != nullptr) {
    report_cleanup_result(call, destroy(*current.driver(), handle));
  }
}

}  // namespace cudaexec::cuda
