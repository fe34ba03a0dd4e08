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

/// Running extremes or log-sums of [outer, count, inner] along `count`; contiguous, one thread per
/// column.
struct ScanColumnsArgs {
  const void* values;
  void* out;
  int64_t* indices;  // of extremes
  int64_t columns;   // outer * inner
  int64_t count;
  int64_t inner;
};

}  // namespace cudaexec::cuda
