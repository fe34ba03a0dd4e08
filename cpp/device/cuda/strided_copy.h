// Copies and fills of device memory with any strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/export.h"
#include "device/cuda/cuda_device.h"

namespace cudaexec {

/// Where the parts of a strided copy go: to a stream, or into a record of them.
class CUDAEXEC_API CopySink {
 public:
  virtual ~CopySink() = default;
  /// One launch; `args` (`nbytes` bytes) begin with two pointers, dst and src. The device is
  /// current.
  virtual void kernel(cuda::CUfunction function, unsigned blocks, unsigned block_x,
                      unsigned block_y, const void* args, size_t nbytes) = 0;
  /// One run of bytes.
  virtual void run(void* dst, const void* src, size_t nbytes) = 0;
};

/// Copies elements of `itemsize` bytes (1, 2, 4, 8 or 16) between two arrays of one device, which
/// do not overlap. `strides` in bytes: dst's reach no element twice, src's may be 0; both may be
/// negative. Addresses and strides are multiples of `itemsize`. Ordered on `stream`; nothing waits.
/// @throws NotSupported if this build has no GPU code and the copy needs some.
CUDAEXEC_API void cuda_strided_copy(CudaDevice& device, void* dst,
                                    std::span<const int64_t> dst_strides, const void* src,
                                    std::span<const int64_t> src_strides,
                                    std::span<const int64_t> sizes, size_t itemsize,
                                    StreamRef stream);

/// As above, to a sink. Loads the kernels it needs.
CUDAEXEC_API void cuda_strided_copy(CudaDevice& device, void* dst,
                                    std::span<const int64_t> dst_strides, const void* src,
                                    std::span<const int64_t> src_strides,
                                    std::span<const int64_t> sizes, size_t itemsize,
                                    CopySink& sink);

/// Sets every element to the `itemsize` bytes at `value`, which is read before return.
CUDAEXEC_API void cuda_strided_fill(CudaDevice& device, void* dst,
                                    std::span<const int64_t> dst_strides,
                                    std::span<const int64_t> sizes, const void* value,
                                    size_t itemsize, StreamRef stream);

}  // namespace cudaexec
