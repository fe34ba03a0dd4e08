// One NVIDIA GPU: its facts, its primary context (shared with torch and every other user of the
// CUDA runtime in the process), copies, and ordering between streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/device_kernels.h"
#include "device/cuda/driver.h"
#include "device/cuda/handles.h"
#include "device/device_interface.h"

namespace cudaexec {

class ThreadStreams;

struct CudaFacts {
  std::string name;
  std::string uuid;             // "GPU-xxxxxxxx-xxxx-..."
  int sm = 0;                   // compute capability: 90 for 9.0
  int sm_count = 0;             // multiprocessors
  size_t total_nbytes = 0;      // memory
  size_t l2_nbytes = 0;         // L2 cache
  int max_shared_nbytes = 0;    // shared memory a block may opt in to
  bool virtual_memory = false;  // cuMemAddressReserve and cuMemMap work
  bool memory_pools = false;
  bool integrated = false;  // shares the host's memory
};

/// Thread-safe. Lives as long as the process. Every call leaves the caller's current context as it
/// was. A null StreamRef is the legacy default stream of this device.
class CUDAEXEC_API CudaDevice final : public DeviceInterface {
 public:
  /// Asks the driver for the facts; creates no context. Use cuda_device().
  explicit CudaDevice(int index);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] Device device() const noexcept override { return {DeviceType::kCuda, index_}; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] const CudaFacts& facts() const noexcept { return facts_; }
  /// The primary context; the first call creates it if nobody has. @throws DeviceError,
  /// OutOfMemory.
  [[nodiscard]] cuda::CUcontext context() {
    const cuda::CUcontext context = context_.load(std::memory_order_acquire);
    return context != nullptr ? context : retain_context();
  }
  [[nodiscard]] cuda::CUcontext context_if_retained() const noexcept { return context_.load(); }

  /// Between this device and the host, another GPU, or itself; ordered on `stream`, which belongs
  /// to this device. Pageable host memory may be reused on return; pinned memory only once `stream`
  /// has passed this point. Nothing for `nbytes` 0.
  /// @throws DeviceError if neither side is this device.
  void copy(void* dst, Device dst_device, const void* src, Device src_device, size_t nbytes,
            StreamRef stream) override;
  void zero(void* dst, size_t nbytes, StreamRef stream) override;
  void synchronize(StreamRef stream) override;

  /// Makes work that is put on `later` from now on wait for what is on `earlier` now, without
  /// making the host wait. `earlier` belongs to `earlier_device`, `later` to this one.
  void order(StreamRef later, StreamRef earlier, CudaDevice& earlier_device);
  void order(StreamRef later, StreamRef earlier) { order(later, earlier, *this); }
  /// A stream of this device for the calling thread's own work; the same one every time. It goes
  /// back for other threads to use when the thread ends.
  [[nodiscard]] StreamRef thread_stream();
  /// Waits for the streams of all threads, but for those that are being captured.
  void synchronize_thread_streams();
  /// Whether work put on `stream` now would be recorded into a graph instead of being done.
  [[nodiscard]] bool is_capturing(StreamRef stream);
  /// Bytes of device memory free now, for everybody.
  [[nodiscard]] size_t free_nbytes();
  /// Our own kernels on this device.
  [[nodiscard]] DeviceKernels& kernels() noexcept { return kernels_; }
  /// Waits for all work of the device. @throws CaptureError while a stream is being captured.
  void synchronize_all();

 private:
  cuda::CUcontext retain_context();

  const int index_;
  cuda::CUdevice handle_ = 0;
  CudaFacts facts_;
  ForkMutex mutex_;
  std::atomic<cuda::CUcontext> context_{nullptr};
  std::shared_ptr<ThreadStreams> thread_streams_;
  DeviceKernels kernels_;
};

/// GPUs that this process sees. @throws DeviceError if there is no driver or no GPU.
CUDAEXEC_API int cuda_device_count();
/// The GPU of an index, as CUDA counts (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER). @throws
/// DeviceError.
CUDAEXEC_API CudaDevice& cuda_device(int index);
/// As above, or null where cuda_device(index) was not called before.
CUDAEXEC_API CudaDevice* cuda_device_if_used(int index) noexcept;
/// The GPU whose primary context this is, or null; only GPUs that cuda_device() returned before.
CUDAEXEC_API CudaDevice* cuda_device_of(cuda::CUcontext context) noexcept;
/// The GPU that a caller's stream belongs to; null for the default streams, which mean whatever
/// device they are used on. @throws DeviceError if the stream is not of a primary context.
CUDAEXEC_API CudaDevice* cuda_device_of_stream(StreamRef stream);

/// Forgets all devices and releases their contexts; nothing may use them. For tests.
CUDAEXEC_API void reset_cuda_devices();

/// A device current for a scope.
class CUDAEXEC_API CudaGuard {
 public:
  explicit CudaGuard(CudaDevice& device) : guard_(device.context()) {}

 private:
  cuda::ContextGuard guard_;
};

inline cuda::CUstream cu_stream(StreamRef stream) noexcept {
  return static_cast<cuda::CUstream>(stream.get());
}
inline cuda::CUdeviceptr cu_pointer(const void* data) noexcept {
  return reinterpret_cast<cuda::CUdeviceptr>(data);
}

}  // namespace cudaexec
