// Several copies on one GPU in one launch.
#pragma once

#include <cstddef>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/kernel_args.h"

namespace cudaexec {

/// The arguments of one launch, filled copy by copy.
class CUDAEXEC_API BatchCopy {
 public:
  /// Whether another copy has room; `inline_nbytes`: of bytes that the arguments carry.
  [[nodiscard]] bool has_room(size_t inline_nbytes = 0) const noexcept {
    return args_.count < cuda::kBatchItems &&
           inline_used_ + rounded(inline_nbytes) <= cuda::kBatchInline;
  }
  /// Adds a copy of `nbytes` > 0 bytes; its index. Memory that the GPU can reach, at any alignment.
  size_t add(void* dst, const void* src, size_t nbytes);
  /// Adds one whose bytes the arguments carry; set_inline() gives them.
  size_t add_inline(void* dst, size_t nbytes);

  /// Later launches use these; each returns whether anything changed.
  bool set_dst(size_t index, void* dst) noexcept;
  bool set_src(size_t index, const void* src) noexcept;
  bool set_inline(size_t index, const void* bytes) noexcept;

  [[nodiscard]] bool empty() const noexcept { return args_.count == 0; }
  [[nodiscard]] const cuda::BatchCopyArgs& args() const noexcept { return args_; }
  [[nodiscard]] unsigned blocks() const noexcept { return blocks_; }
  /// @throws NotSupported if this build has no GPU code.
  [[nodiscard]] static cuda::CUfunction kernel(CudaDevice& device);
  /// Puts it on the stream; the device's context is current.
  void launch(CudaDevice& device, StreamRef stream) const;

 private:
  static size_t rounded(size_t nbytes) noexcept { return (nbytes + 15) / 16 * 16; }

  cuda::BatchCopyArgs args_{};
  size_t inline_used_ = 0;
  unsigned blocks_ = 0;
};

}  // namespace cudaexec
