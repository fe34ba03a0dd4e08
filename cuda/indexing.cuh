// From a linear index to byte offsets.
#pragma once

#include <cstdint>

#include "device/cuda/kernel_args.h"
#include "kernel.cuh"

namespace cudaexec::cuda {

__device__ __forceinline__ uint32_t divide(uint32_t n, const FastDivisor& by) {
  return (__umulhi(n, by.multiplier) + n) >> by.shift;
}

/// Splits `index` over `sizes`, last dimension fastest, calling visit(dimension, coordinate).
template <typename Args, typename Visit>
__device__ __forceinline__ void split_index(const Args& args, uint32_t index, const Visit& visit) {
#pragma unroll
  for (int dim = kMaxKernelRank - 1; dim > 0; --dim) {
    if (dim >= args.rank) continue;
    const uint32_t quotient = divide(index, args.divisors[dim]);
    visit(dim, index - quotient * args.divisors[dim].divisor);
    index = quotient;
  }
  visit(0, index);
}

/// As above for more elements than 32 bits count; rare, so small rather than fast.
template <typename Args, typename Visit>
__device__ __forceinline__ void split_index(const Args& args, uint64_t index, const Visit& visit) {
#pragma unroll 1
  for (int dim = args.rank - 1; dim > 0; --dim) {
    const uint64_t quotient = index / args.sizes[dim];
    visit(dim, index - quotient * args.sizes[dim]);
    index = quotient;
  }
  visit(0, index);
}

}  // namespace cudaexec::cuda
