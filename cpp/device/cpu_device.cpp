#include <cstring>

#include "base/error.h"
#include "base/str.h"
#include "device/device_interface.h"

namespace cudaexec {
namespace {

class CpuDevice final : public DeviceInterface {
 public:
  [[nodiscard]] Device device() const noexcept override { return {}; }

  void copy(void* dst, Device dst_device, const void* src, Device src_device, size_t nbytes,
            StreamRef /*stream*/) override {
    if (!dst_device.is_cpu() || !src_device.is_cpu()) {
      throw DeviceError(str("the CPU device cannot copy from ", to_string(src_device), " to ",
                            to_string(dst_device)));
    }
    if (nbytes != 0) std::memcpy(dst, src, nbytes);
  }

  void zero(void* dst, size_t nbytes, StreamRef /*stream*/) override {
    if (nbytes != 0) std::memset(dst, 0, nbytes);
  }

  void synchronize(StreamRef /*stream*/) override {}
};

}  // namespace

DeviceInterface& cpu_device() noexcept {
  static CpuDevice device;
  return device;
}

}  // namespace cudaexec
