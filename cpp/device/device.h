// Which device, and a non-owning stream. CPU work has a null stream.
#pragma once

#include <cstdint>
#include <string>

#include "base/str.h"

namespace cudaexec {

/// torch's device codes.
enum class DeviceType : int32_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;  // 0 for the CPU

  [[nodiscard]] bool is_cpu() const noexcept { return type == DeviceType::kCpu; }
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:1".
inline std::string to_string(Device device) {
  return device.is_cpu() ? std::string("cpu") : str("cuda:", device.index);
}

/// Non-owning view of a stream; null on the CPU and for CUDA's legacy default stream.
class StreamRef {
 public:
  constexpr StreamRef() noexcept = default;
  constexpr explicit StreamRef(void* handle) noexcept : handle_(handle) {}
  [[nodiscard]] constexpr void* get() const noexcept { return handle_; }
  friend constexpr bool operator==(StreamRef, StreamRef) = default;

 private:
  void* handle_ = nullptr;
};

}  // namespace cudaexec
