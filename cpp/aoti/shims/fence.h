// The fence of every extern "C" shim: no exception crosses into generated code; the original one
// waits in the CallScope for Container::run to rethrow it. Once a parallel region of the same run
// has failed, shims report failure at once, which ends the run.
#pragma once

#include "aoti/call_scope.h"
#include "base/export.h"
#include "base/fault.h"
#include "device/region_error.h"

// Usage: CUDAEXEC_SHIM int32_t aoti_torch_x(...) { CUDAEXEC_SHIM_BEGIN ... CUDAEXEC_SHIM_END }
#define CUDAEXEC_SHIM extern "C" CUDAEXEC_API
#define CUDAEXEC_SHIM_BEGIN                       \
  if (::cudaexec::region_failed()) [[unlikely]] { \
    return 1;                                     \
  }                                               \
  try {                                           \
    ::cudaexec::fault_point(::cudaexec::FaultSite::kShim, __func__);
#define CUDAEXEC_SHIM_END                                    \
  return 0;                                                  \
  }                                                          \
  catch (...) {                                              \
    return ::cudaexec::CallScope::store_current_exception(); \
  }
