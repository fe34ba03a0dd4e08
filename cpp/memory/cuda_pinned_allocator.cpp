#include "memory/cuda_pinned_allocator.h"

#include "base/cleanup_report.h"
#include "base/fault.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"

namespace cudaexec {

using namespace cuda;

namespace {

class CudaPinnedAllocator final : public Allocator {
 public:
  void* allocate(size_t nbytes, StreamRef /*stream*/) override {
    fault_point(FaultSite::kAllocate, "pinned host allocation");
    const CudaGuard guard(cuda_device(0));
    void* data = nullptr;
    CUDAEXEC_CU_ALLOC(nbytes, cuMemHostAlloc, &data, nbytes, CU_MEMHOSTALLOC_PORTABLE);
    return data;
  }

  void deallocate(void* data, size_t /*nbytes*/, StreamRef /*stream*/) noexcept override {
    if (driver_if_initialised() == nullptr) return;
    try {
      const CudaGuard guard(cuda_device(0));
      CUDAEXEC_CU(cuMemFreeHost, data);
    } catch (const std::exception& error) {
      report_cleanup_failure("cuMemFreeHost", error.what());
    }
  }
};

}  // namespace

Allocator& cuda_pinned_allocator() {
  driver();
  static CudaPinnedAllocator allocator;
  return allocator;
}

}  // namespace cudaexec
