// Arguments of the kernel in cuda/cast.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

/// to[i] = from[i]; contiguous. Dtypes by torch's numbers.
struct CastArgs {
  const void* from;
  void* to;
  int64_t count;
  int32_t from_dtype, to_dtype;
};

}  // namespace cudaexec::cuda
