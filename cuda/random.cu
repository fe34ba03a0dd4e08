// Random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, 2011), the same sequences as on the
// CPU (cpp/ops/random.cpp). Driven by cpp/ops/cuda/random.cpp.
#include "kernel.cuh"
#include "ops/cuda/random_args.h"

namespace cudaexec::cuda {
namespace {

constexpr unsigned kRandomThreads = 256;

struct Block {
  uint64_t a, b;
};

__device__ __forceinline__ Block philox(uint64_t seed, uint64_t counter) {
  constexpr uint32_t kMultiplyA = 0xD2511F53;
  constexpr uint32_t kMultiplyB = 0xCD9E8D57;
  auto key_a = static_cast<uint32_t>(seed);
  auto key_b = static_cast<uint32_t>(seed >> 32);
  uint32_t x0 = static_cast<uint32_t>(counter);
  uint32_t x1 = static_cast<uint32_t>(counter >> 32);
  uint32_t x2 = 0;
  uint32_t x3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t a_high = __umulhi(kMultiplyA, x0);
    const uint32_t a_low = kMultiplyA * x0;
    const uint32_t b_high = __umulhi(kMultiplyB, x2);
    const uint32_t b_low = kMultiplyB * x2;
    x0 = b_high ^ x1 ^ key_a;
    x1 = b_low;
    x2 = a_high ^ x3 ^ key_b;
    x3 = a_low;
    key_a += 0x9E3779B9;
    key_b += 0xBB67AE85;
  }
  return {x0 | static_cast<uint64_t>(x1) << 32, x2 | static_cast<uint64_t>(x3) << 32};
}

/// bits * range / 2^64
__device__ __forceinline__ uint64_t below(uint64_t bits, uint64_t range) {
  return range == 0 ? bits : __umul64hi(bits, range);
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

CUDAEXEC_KERNEL(cudaexec_random_integers, RandomIntegersArgs, kRandomThreads) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kRandomThreads + threadIdx.x;
  if (2 * block >= a.count) return;
  const Block bits = philox(a.position.seed, a.position.first + static_cast<uint64_t>(block));
  a.out[2 * block] = static_cast<int64_t>(static_cast<uint64_t>(a.low) + below(bits.a, a.range));
  if (2 * block + 1 < a.count) {
    a.out[2 * block + 1] =
        static_cast<int64_t>(static_cast<uint64_t>(a.low) + below(bits.b, a.range));
  }
}
