// The table of NVIDIA driver entries. libcuda.so.1 is opened the first time something asks for a
// GPU, never at import or for CPU programs, and nothing of ours links to it.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/export.h"
#include "device/cuda/driver_abi.h"
#include "device/cuda/driver_entries.h"

namespace cudaexec::cuda {

/// Oldest driver that is accepted, as the CUDA version it reports (12000 = 12.0).
inline constexpr int kMinimumDriver = 12000;

struct DriverApi {
#define CUDAEXEC_CUDA_MEMBER(name, version, parameters) CUresult(*name) parameters = nullptr;
  CUDAEXEC_CUDA_ENTRIES(CUDAEXEC_CUDA_MEMBER)
#undef CUDAEXEC_CUDA_MEMBER
  int version = 0;      // CUDA version of the driver
  std::string library;  // what was opened
};

namespace driver_detail {
CUDAEXEC_API extern std::atomic<const DriverApi*> table;
CUDAEXEC_API const DriverApi& load();
}  // namespace driver_detail

/// The initialised driver; opened by the first call. Thread-safe.
/// @throws DeviceError if there is no driver, it is too old, no GPU is visible, or this process was
/// forked from one that had initialised CUDA.
inline const DriverApi& driver() {
  const DriverApi* api = driver_detail::table.load(std::memory_order_acquire);
  if (api != nullptr) [[likely]]
    return *api;
  return driver_detail::load();
}

/// The driver if it was initialised already and can still be called; for destructors.
inline const DriverApi* driver_if_initialised() noexcept {
  return driver_detail::table.load(std::memory_order_acquire);
}

/// Whether this process was forked from one that had initialised CUDA, so that driver() throws.
CUDAEXEC_API bool is_forked_child() noexcept;

/// Why driver() throws, or nothing where it works (then the driver is initialised afterwards).
CUDAEXEC_API std::optional<std::string> driver_problem();

/// Opens `path` instead of libcuda.so.1 from the next driver() on; empty: libcuda.so.1 again.
/// Everything made with the driver before must be gone. For tests.
CUDAEXEC_API void set_driver_library(const std::string& path);

}  // namespace cudaexec::cuda
