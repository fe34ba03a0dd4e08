// Arguments of the kernels in cuda/scan.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr unsigned kScanThreads = 256;

/// out[line, i] = values[line, 0] (op) ... (op) values[line, i]; contiguous, one block per line.
struct ScanArgs {
  const void* values;
  void* out;
  int64_t length;
};

}  // namespace cudaexec::cuda
