// Reserved addresses that physical memory is put behind, page by page: what grows without moving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/export.h"
#include "device/device.h"

namespace cudaexec {

class CudaDevice;

/// Thread-safe. Sizes and addresses are multiples of granularity(); one piece of physical memory
/// may be behind several addresses at once.
class CUDAEXEC_API PageBackend {
 public:
  virtual ~PageBackend() = default;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// Bytes.
  [[nodiscard]] virtual size_t granularity() const noexcept = 0;
  /// False in a forked child: there nothing may be created or written, only given back.
  [[nodiscard]] virtual bool is_usable() const noexcept = 0;

  /// Addresses without memory. @throws OutOfMemory, DeviceError.
  [[nodiscard]] virtual std::byte* reserve(size_t nbytes) = 0;
  /// All of what reserve() gave; on a GPU nothing is mapped there any more.
  virtual void unreserve(std::byte* base, size_t nbytes) noexcept = 0;

  /// Physical memory. Bytes are zero on the CPU and unknown on a GPU. @throws OutOfMemory.
  [[nodiscard]] virtual uint64_t create(size_t nbytes) = 0;
  /// Mappings of it stay valid until they are unmapped.
  virtual void destroy(uint64_t page, size_t nbytes) noexcept = 0;

  /// All of `page` behind `address`, where nothing is. @throws; then nothing changed.
  virtual void map(std::byte* address, uint64_t page, size_t nbytes) = 0;
  /// What one map() did; the caller has waited for the work that uses it. @throws as map().
  virtual void unmap(std::byte* address, size_t nbytes) = 0;
};

/// Host memory, of an anonymous file.
CUDAEXEC_API std::shared_ptr<PageBackend> make_cpu_pages();
/// Memory of a GPU. @throws NotSupported if it has no virtual memory management, DeviceError.
CUDAEXEC_API std::shared_ptr<PageBackend> make_cuda_pages(CudaDevice& device);

}  // namespace cudaexec
