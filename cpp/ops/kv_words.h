// What the kernels of a KV cache share with the host, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec {

/// On a GPU, in its memory: what the kernels of a step go by.
struct KvDeviceWord {
  uint32_t position;  // committed tokens before this step
  uint32_t poisoned;  // a step came with other positions: nothing is written until the host knows
};

/// In page-locked host memory, written by the GPU.
struct KvFault {
  uint32_t raised;
  uint32_t expected;  // position of the first step that came with others
  int64_t found;
};

}  // namespace cudaexec
