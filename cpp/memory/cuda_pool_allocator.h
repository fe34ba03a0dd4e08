// Device memory from a pool of our own: stream-ordered, kept for reuse, given back by trim().
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/handles.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Thread-safe; lives as long as the process. Streams given to it belong to its device and outlive
/// the memory that was allocated on them.
class CUDAEXEC_API CudaPoolAllocator final : public Allocator {
 public:
  /// Bytes, of the pool alone.
  struct Usage {
    size_t used = 0;       // allocated
    size_t reserved = 0;   // taken from the device: used and kept for reuse
    size_t used_peak = 0;  // since the pool was made
  };

  /// Use cuda_allocator(). @throws NotSupported if the device has no memory pools.
  explicit CudaPoolAllocator(CudaDevice& device);

  /// Never waits, unless the device is short of memory: then it trims, waits for `stream` and tries
  /// again. @throws OutOfMemory naming what the device has left; CaptureError if `stream` is being
  /// captured (what a graph uses comes from the graph's own memory).
  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  /// Memory freed on a stream that is being captured waits until it is not.
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  size_t trim() noexcept override;

  [[nodiscard]] Usage usage();
  [[nodiscard]] CudaDevice& device() const noexcept { return device_; }

 private:
  struct Deferred {
    void* data;
    StreamRef stream;
  };
  void* try_allocate(size_t nbytes, StreamRef stream, cuda::CUresult& result);
  [[noreturn]] void throw_out_of_memory(size_t nbytes);
  bool free_now(void* data, StreamRef stream) noexcept;
  void defer(void* data, StreamRef stream) noexcept;
  void free_deferred() noexcept;
  [[nodiscard]] size_t attribute(cuda::CUmemPool_attribute which);

  CudaDevice& device_;
  cuda::MemoryPoolHandle pool_;
  ForkMutex mutex_;
  std::vector<Deferred> deferred_;
  std::atomic<size_t> deferred_count_{0};
};

/// The pool of a device. @throws DeviceError, NotSupported.
CUDAEXEC_API CudaPoolAllocator& cuda_allocator(int device_index);
/// Destroys all pools; nothing may have memory of them. For tests.
CUDAEXEC_API void reset_cuda_allocators();

}  // namespace cudaexec
