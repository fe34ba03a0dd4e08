// Owners of driver objects: one template, and one line per kind.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "base/export.h"
#include "device/cuda/driver.h"

namespace cudaexec::cuda {

/// Makes a context current for a scope and restores exactly what was current before, whatever the
/// code in between selected.
class CUDAEXEC_API ContextGuard {
 public:
  /// @throws DeviceError, InternalError; then nothing changed.
  explicit ContextGuard(CUcontext context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

/// As above for destructors: never throws, and does nothing where the driver cannot be called any
/// more (a forked child, a process that is ending). A failure is reported as one of `call`.
class CUDAEXEC_API CleanupContext {
 public:
  CleanupContext(CUcontext context, const char* call) noexcept;
  ~CleanupContext();
  CleanupContext(const CleanupContext&) = delete;
  CleanupContext& operator=(const CleanupContext&) = delete;
  /// The driver, with the context current; null if it cannot be called.
  [[nodiscard]] const DriverApi* driver() const noexcept { return driver_; }

 private:
  const DriverApi* driver_ = nullptr;
};

/// Passes a failed cleanup call to report_cleanup_failure(); a driver that has shut down is none.
CUDAEXEC_API void report_cleanup_result(const char* call, CUresult result) noexcept;

namespace handle_detail {
using Destroyer = CUresult (*)(const DriverApi& api, uint64_t handle);
/// Calls `destroy` in a CleanupContext.
CUDAEXEC_API void destroy(CUcontext context, uint64_t handle, Destroyer destroy,
                          const char* call) noexcept;
}  // namespace handle_detail

/// Owns a driver object and the knowledge of its context.
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept = default;
  UniqueHandle(Handle handle, CUcontext context) noexcept : handle_(handle), context_(context) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, Handle{})), context_(other.context_) {}
  UniqueHandle& operator=(UniqueHandle other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(context_, other.context_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != Handle{}) {
      handle_detail::destroy(context_, std::bit_cast<uint64_t>(handle_), &Traits::destroy,
                             Traits::kCall);
    }
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  explicit operator bool() const noexcept { return handle_ != Handle{}; }

 private:
  Handle handle_{};
  CUcontext context_ = nullptr;
};

#define CUDAEXEC_CUDA_HANDLE(Name, Type, entry)                               \
  struct Name##Traits {                                                       \
    using Handle = Type;                                                      \
    static constexpr const char* kCall = #entry;                              \
    static CUresult destroy(const DriverApi& api, uint64_t handle) noexcept { \
      return api.entry(std::bit_cast<Type>(handle));                          \
    }                                                                         \
  };                                                                          \
  using Name = UniqueHandle<Name##Traits>

CUDAEXEC_CUDA_HANDLE(StreamHandle, CUstream, cuStreamDestroy);
CUDAEXEC_CUDA_HANDLE(EventHandle, CUevent, cuEventDestroy);
CUDAEXEC_CUDA_HANDLE(ModuleHandle, CUmodule, cuModuleUnload);
CUDAEXEC_CUDA_HANDLE(MemoryPoolHandle, CUmemoryPool, cuMemPoolDestroy);
CUDAEXEC_CUDA_HANDLE(GraphHandle, CUgraph, cuGraphDestroy);
CUDAEXEC_CUDA_HANDLE(GraphExecHandle, CUgraphExec, cuGraphExecDestroy);
CUDAEXEC_CUDA_HANDLE(PhysicalMemoryHandle, CUmemGenericAllocationHandle, cuMemRelease);

}  // namespace cudaexec::cuda
