#include "device/cuda/generated_call.h"

#include "device/cuda/check.h"

namespace cudaexec {

namespace {
thread_local GeneratedCall* innermost = nullptr;
}

GeneratedCall::GeneratedCall(CudaDevice& device, cuda::ModuleTracker& modules)
    : guard_(device), modules_(modules), previous_(innermost) {
  innermost = this;
}

GeneratedCall::~GeneratedCall() { innermost = previous_; }

GeneratedCall* GeneratedCall::current() noexcept { return innermost; }

void GeneratedCall::note_failure(cuda::CUresult result, const char* call, size_t nbytes) noexcept {
  if (failure_ != cuda::CUDA_SUCCESS) return;
  failure_ = result;
  failed_call_ = call;
  failed_nbytes_ = nbytes;
}

void GeneratedCall::rethrow_if_failed() const {
  if (failure_ != cuda::CUDA_SUCCESS) {
    cuda::throw_failure(failure_, failed_call_, "generated code", 0, failed_nbytes_);
  }
}

}  // namespace cudaexec
