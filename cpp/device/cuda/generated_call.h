// Around every call into a generated library for a GPU: its device is current, its modules are
// tracked, and the driver failure it stumbled over is kept, since generated code reports only that
// something failed.
#pragma once

#include <cstddef>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/driver.h"
#include "device/cuda/module_tracker.h"

namespace cudaexec {

/// Scoped per thread; nests. Restores the caller's device although generated code selects its own.
class CUDAEXEC_API GeneratedCall {
 public:
  GeneratedCall(CudaDevice& device, cuda::ModuleTracker& modules);
  ~GeneratedCall();
  GeneratedCall(const GeneratedCall&) = delete;
  GeneratedCall& operator=(const GeneratedCall&) = delete;

  /// Throws the typed error of the first driver call of generated code that failed in this scope.
  void rethrow_if_failed() const;

  /// The innermost scope of this thread, or null.
  static GeneratedCall* current() noexcept;
  [[nodiscard]] cuda::ModuleTracker& modules() const noexcept { return modules_; }
  /// `call` names the entry; `nbytes` is the size of a failed allocation.
  void note_failure(cuda::CUresult result, const char* call, size_t nbytes) noexcept;

 private:
  CudaGuard guard_;
  cuda::ModuleTracker& modules_;
  GeneratedCall* previous_;
  cuda::CUresult failure_ = cuda::CUDA_SUCCESS;
  const char* failed_call_ = "";
  size_t failed_nbytes_ = 0;
};

}  // namespace cudaexec
