#include "memory/cuda_pool_allocator.h"

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

namespace {

bool is_capture_error(CUresult result) noexcept {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

CudaPoolAllocator::CudaPoolAllocator(CudaDevice& device) : device_(device) {
  if (!device.facts().memory_pools) {
    throw NotSupported(str(to_string(device.device()), " (", device.facts().name,
                           ") has no memory pools; use a GPU and driver that have them"));
  }
  const CudaGuard guard(device);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.index()};
  CUmemoryPool pool = nullptr;
  CUDAEXEC_CU(cuMemPoolCreate, &pool, &properties);
  pool_ = MemoryPoolHandle(pool, device.context());
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // trim() gives back, not every wait
  CUDAEXEC_CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}

void* CudaPoolAllocator::try_allocate(size_t nbytes, StreamRef stream, CUresult& result) {
  CUdeviceptr data = 0;
  result = driver().cuMemAllocFromPoolAsync(&data, nbytes, pool_.get(), cu_stream(stream));
  return reinterpret_cast<void*>(data);
}

void* CudaPoolAllocator::allocate(size_t nbytes, StreamRef stream) {
  fault_point(FaultSite::kAllocate, "device allocation");
  if (device_.is_capturing(stream)) {
    throw CaptureError(str("cannot allocate ", nbytes, " bytes on ", to_string(device_.device()),
                           ": the stream is being captured into a CUDA graph; run this call once "
                           "outside of the capture, or let the method make its own graph"));
  }
  if (deferred_count_.load(std::memory_order_relaxed) != 0) free_deferred();
  const CudaGuard guard(device_);
  CUresult result = CUDA_SUCCESS;
  void* data = try_allocate(nbytes, stream, result);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    CUDAEXEC_CU(cuStreamSynchronize, cu_stream(stream));
    trim();  // gives back what the stream has come to free
    data = try_allocate(nbytes, stream, result);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(nbytes);
  }
  check(result, "cuMemAllocFromPoolAsync", CUDAEXEC_FILE, __LINE__, nbytes);
  return data;
}

void CudaPoolAllocator::throw_out_of_memory(size_t nbytes) {
  const Usage now = usage();
  const size_t free = device_.free_nbytes();
  throw OutOfMemory(str("cannot allocate ", nbytes, " bytes on ", to_string(device_.device()), ": ",
                        now.used, " bytes in use by this process's programs, ",
                        now.reserved - now.used, " kept for reuse, ", free, " of ",
                        device_.facts().total_nbytes,
                        " free on the device; use smaller inputs, drop outputs that are no longer "
                        "needed, or free memory of other programs"));
}

bool CudaPoolAllocator::free_now(void* data, StreamRef stream) noexcept {
  const CleanupContext current(device_.context_if_retained(), "cuMemFreeAsync");
  const DriverApi* api = current.driver();
  if (api == nullptr) return true;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = api->cuStreamIsCapturing(cu_stream(stream), &status);
  if (is_capture_error(result) || status != CU_STREAM_CAPTURE_STATUS_NONE) return false;
  if (result == CUDA_SUCCESS) result = api->cuMemFreeAsync(cu_pointer(data), cu_stream(stream));
  // The stream may be gone: then wait for everything, which is slow but right.
  if (result != CUDA_SUCCESS) {
    report_cleanup_result("cuMemFreeAsync", api->cuMemFree(cu_pointer(data)));
  }
  return true;
}

void CudaPoolAllocator::deallocate(void* data, size_t /*nbytes*/, StreamRef stream) noexcept {
  if (deferred_count_.load(std::memory_order_relaxed) != 0) free_deferred();
  if (!free_now(data, stream)) defer(data, stream);
}

void CudaPoolAllocator::defer(void* data, StreamRef stream) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    deferred_.push_back({data, stream});
    deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
  } catch (...) {
    report_cleanup_failure("cuMemFreeAsync", "no host memory to remember it during a capture");
  }
}

void CudaPoolAllocator::free_deferred() noexcept {
  std::vector<Deferred> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(deferred_);
    deferred_count_.store(0, std::memory_order_relaxed);
  }
  for (const Deferred& free : waiting) {
    if (!free_now(free.data, free.stream)) defer(free.data, free.stream);
  }
}

size_t CudaPoolAllocator::trim() noexcept {
  if (driver_if_initialised() == nullptr) return 0;  // a forked child
  free_deferred();
  try {
    const CudaGuard guard(device_);
    const size_t before = attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CUDAEXEC_CU(cuMemPoolTrimTo, pool_.get(), 0);
    return before - attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  } catch (const std::exception& error) {
    report_cleanup_failure("cuMemPoolTrimTo", error.what());
    return 0;
  }
}

size_t CudaPoolAllocator::attribute(CUmemPool_attribute which) {
  uint64_t value = 0;
  CUDAEXEC_CU(cuMemPoolGetAttribute, pool_.get(), which, &value);
  return static_cast<size_t>(value);
}

CudaPoolAllocator::Usage CudaPoolAllocator::usage() {
  const CudaGuard guard(device_);
  return {attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
          attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
          attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH)};
}

namespace {

constexpr size_t kMaxDevices = 64;

struct Pools {
  ForkMutex mutex;
  std::array<std::unique_ptr<CudaPoolAllocator>, kMaxDevices> owned;
  std::array<std::atomic<CudaPoolAllocator*>, kMaxDevices> pools{};
};

Pools& all_pools() noexcept {
  static Pools& instance = *new Pools;  // never destroyed: memory may outlive statics
  return instance;
}

}  // namespace

CudaPoolAllocator& cuda_allocator(int device_index) {
  CudaDevice& device = cuda_device(device_index);
  const auto slot = static_cast<size_t>(device_index);
  Pools& all = all_pools();
  if (CudaPoolAllocator* pool = all.pools[slot].load(std::memory_order_acquire); pool != nullptr) {
    return *pool;
  }
  const std::lock_guard lock(all.mutex);
  if (!all.owned[slot]) {
    all.owned[slot] = std::make_unique<CudaPoolAllocator>(device);
    all.pools[slot].store(all.owned[slot].get(), std::memory_order_release);
  }
  return *all.owned[slot];
}

void reset_cuda_allocators() {
  Pools& all = all_pools();
  const std::lock_guard lock(all.mutex);
  for (std::atomic<CudaPoolAllocator*>& slot : all.pools) slot.store(nullptr);
  for (std::unique_ptr<CudaPoolAllocator>& pool : all.owned) pool.reset();
}

}  // namespace cudaexec
