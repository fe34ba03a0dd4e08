// Arguments of the kernels in cuda/random.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

/// Where a sequence of random numbers goes on.
struct RandomPosition {
  uint64_t seed;
  uint64_t first;  // block of the sequence
};

/// Whole numbers of [low, low + range) (range 0: any), two per block of the sequence from
/// `position`.
struct RandomIntegersArgs {
  int64_t* out;
  int64_t count;
  int64_t low;
  uint64_t range;
  RandomPosition position;
};

}  // namespace cudaexec::cuda
