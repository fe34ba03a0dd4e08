#include "runtime/kv_device.h"

#include <atomic>
#include <new>

#include "device/cuda/check.h"
#include "memory/cuda_pinned_allocator.h"
#include "memory/cuda_pool_allocator.h"

namespace cudaexec {

KvDevice::KvDevice(CudaDevice& device) : device_(device), stream_(device.thread_stream()) {
  Allocator& memory = cuda_allocator(device.index());
  void* fault = cuda_pinned_allocator().allocate(sizeof(KvFault), StreamRef());
  fault_ = new (fault) KvFault{};
  void* word = nullptr;
  try {
    word = memory.allocate(sizeof(KvDeviceWord), stream_);
    device.synchronize(stream_);  // work on any stream may use it from now on
  } catch (...) {
    if (word != nullptr) memory.deallocate(word, sizeof(KvDeviceWord), stream_);
    cuda_pinned_allocator().deallocate(fault_, sizeof(KvFault), StreamRef());
    throw;
  }
  word_ = static_cast<KvDeviceWord*>(word);
}

KvDevice::~KvDevice() {
  if (cuda::driver_if_initialised() == nullptr) return;  // a forked child
  cuda_allocator(device_.index()).deallocate(word_, sizeof(KvDeviceWord), stream_);
  cuda_pinned_allocator().deallocate(fault_, sizeof(KvFault), StreamRef());
}

void KvDevice::set_position(int64_t position, StreamRef stream) {
  const CudaGuard guard(device_);
  if (poisoned_) {
    CUDAEXEC_CU(cuMemsetD32Async, cu_pointer(&word_->poisoned), 0, 1, cu_stream(stream));
    poisoned_ = false;
  }
  CUDAEXEC_CU(cuMemsetD32Async, cu_pointer(&word_->position), static_cast<unsigned>(position), 1,
              cu_stream(stream));
}

void KvDevice::copy(std::byte* dst, const std::byte* src, size_t nbytes, StreamRef stream) {
  const CudaGuard guard(device_);
  if (dst != nullptr) {
    CUDAEXEC_CU(cuMemcpyDtoDAsync, cu_pointer(dst), cu_pointer(src), nbytes, cu_stream(stream));
  }
  CUDAEXEC_CU(cuStreamSynchronize, cu_stream(stream));
}

std::optional<KvFault> KvDevice::take_fault() noexcept {
  auto& raised = *static_cast<volatile uint32_t*>(&fault_->raised);
  if (raised == 0) [[likely]]
    return std::nullopt;
  std::atomic_thread_fence(std::memory_order_acquire);
  const KvFault found = *fault_;
  raised = 0;
  poisoned_ = true;
  return found;
}

}  // namespace cudaexec
