#include "memory/cuda_pinned_allocator.h"

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
    CUDAEXEC_CU_ALLOC(nbytes, cuMemHostAlloc, &data, nbytes, CU_MEMHOSTALLOC_PORTABLE_);
    return data;
  }

  void deallocate(void* data, size_t /*nbytes*/, StreamRef /*stream*/) noexcept override {
    CudaDevice* device = cuda_device_if_used(0);
    if (device == nullptr) return;
    const CleanupContext current(device->context_if_retained(), "cuMemFreeHost");
    if (current.driver() == nullptr) return;
    report_cleanup_result("cuMemFreeHost", current.driver()->cuMemFreeHost(data));
  }
};

}  // namespace

Allocator& cuda_pinned_allocator() {
  driver();
  static CudaPinnedAllocator allocator;
  return allocator;
}

}  // namespace cudaexec
