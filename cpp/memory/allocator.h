// The allocator interface: two methods over a stream. Statistics, limits, caching and failure are
// wrappers around another allocator.
#pragma once

#include <cstddef>
#include <memory>

#include "base/export.h"
#include "device/device.h"

namespace cudaexec {

inline constexpr size_t kDefaultAlignment = 64;  // bytes; also what generated code expects

class CUDAEXEC_API Allocator {
 public:
  virtual ~Allocator() = default;
  /// Returns at least `nbytes` bytes (`nbytes` > 0) aligned to kDefaultAlignment, uninitialised,
  /// usable by work ordered on `stream`. @throws OutOfMemory with the size; then nothing was
  /// allocated.
  [[nodiscard]] virtual void* allocate(size_t nbytes, StreamRef stream) = 0;
  /// Gives back what allocate() returned, with the same `nbytes`, once work ordered on `stream` is
  /// done.
  virtual void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept = 0;
  /// Returns cached memory to the system; gives the number of bytes released.
  virtual size_t trim() noexcept { return 0; }
};

/// malloc-backed host memory. Thread-safe; lives as long as the process.
CUDAEXEC_API Allocator& cpu_allocator() noexcept;

}  // namespace cudaexec
