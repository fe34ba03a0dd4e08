// What the shims of one run need and cannot be passed: device, stream, allocator, and the exception
// that a shim stopped with. Scoped per thread; the only hidden thread state of the core.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "base/export.h"
#include "device/device.h"
#include "memory/allocator.h"
#include "ops/op_context.h"

namespace cudaexec {

class CUDAEXEC_API CallScope {
 public:
  CallScope(Device device, StreamRef stream, Allocator& allocator) noexcept;
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  /// The innermost scope of this thread, or null outside a run.
  static CallScope* current() noexcept;
  /// Keeps the exception being handled for rethrow_if_pending(); returns the shim's error code, 1.
  static int32_t store_current_exception() noexcept;
  /// Throws the first exception that a shim stored in this scope.
  void rethrow_if_pending();

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
  [[nodiscard]] Allocator& allocator() const noexcept { return allocator_; }
  /// Generated code has chosen another stream; returns the one before.
  StreamRef exchange_stream(StreamRef stream) noexcept { return std::exchange(stream_, stream); }

 private:
  Device device_;
  StreamRef stream_;
  Allocator& allocator_;
  std::exception_ptr pending_;
  CallScope* previous_;
};

/// Allocator and stream of the current scope, or the CPU allocator outside of one.
CUDAEXEC_API OpContext current_op_context() noexcept;
/// The same for results on `device`: host tensors of a run on a GPU come from the host's allocator.
CUDAEXEC_API OpContext op_context_for(Device device) noexcept;

}  // namespace cudaexec
