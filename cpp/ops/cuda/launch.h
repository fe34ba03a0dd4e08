// Launching our own kernels: one struct of arguments, one-dimensional grids and blocks.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/device_kernels.h"

namespace cudaexec::gpu {

inline constexpr unsigned kThreads = 256;  // of a block, unless a kernel says otherwise
inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

/// Blocks of `per_block` elements.
inline int64_t blocks_for(int64_t count, int64_t per_block = kThreads) {
  return (count + per_block - 1) / per_block;
}

/// Puts a kernel on the stream; nothing for 0 blocks. The device is made current.
template <typename Args>
void launch(CudaDevice& device, const char* image, const std::string& kernel, const Args& args,
            int64_t blocks, StreamRef stream, unsigned threads = kThreads) {
  if (blocks == 0) return;
  if (blocks > kMaxBlocks) {
    throw NotSupported(str(kernel, " on ", blocks, " blocks of ", threads,
                           " elements: more than a GPU takes at once; use smaller tensors"));
  }
  const CudaGuard guard(device);
  const cuda::CUfunction function = device.kernels().get(device, image, kernel.c_str());
  void* parameters[] = {const_cast<Args*>(&args)};
  CUDAEXEC_CU(cuLaunchKernel, function, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1, 0,
              cu_stream(stream), parameters, nullptr);
}

}  // namespace cudaexec::gpu
