// What the threads of a warp do together: exchanges of registers and products of small matrices.
#pragma once

#include "kernel.cuh"
#include "numbers.cuh"

namespace cudaexec::cuda {

#if defined(CUDAEXEC_EMULATION)

__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  const int lane = threadIdx.x % 32;
  return emulation::exchange(value)[lane ^ mask];
}

/// Two 16-bit elements in a register, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return narrow(low, T{}).bits | static_cast<uint32_t>(narrow(high, T{}).bits) << 16;
}

namespace warp_detail {
struct Operands {
  uint32_t a[4], b[2];
};
template <typename T>
inline float half_of(uint32_t word, int which) {
  return widen(T{static_cast<uint16_t>(word >> (16 * which))});
}
}  // namespace warp_detail

/// c += a b, a of 16 x 16 and b of 16 x 8 elements of T. With g = lane / 4 and p = lane % 4, a
/// thread holds of a (rows g and g + 8 by turns) columns 2p, 2p + 1 and then 2p + 8, 2p + 9; of b
/// column g, rows 2p, 2p + 1 and 2p + 8, 2p + 9; of c rows g and g + 8, columns 2p, 2p + 1.
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  const int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
  const warp_detail::Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const warp_detail::Operands* all = emulation::exchange(mine);
  for (int i = 0; i < 4; ++i) {
    const int row = i / 2, column = 2 * p + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const int lane = k % 8 / 2, upper = k / 8, half = k % 2;
      const float x = warp_detail::half_of<T>(all[g * 4 + lane].a[row + 2 * upper], half);
      const float y = warp_detail::half_of<T>(all[column * 4 + lane].b[upper], half);
      sum += x * y;
    }
    c[i] += sum;
  }
}

#else

__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<Float16>(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}
template <>
__device__ __forceinline__ uint32_t pack<Bfloat16>(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1);
template <>
__device__ __forceinline__ void multiply<Float16>(float (&c)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<Bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

/// The largest (the sum) of four neighbouring threads.
__device__ __forceinline__ float largest_of_four(float value) {
  value = fmaxf(value, shuffle_xor(value, 1));
  return fmaxf(value, shuffle_xor(value, 2));
}
__device__ __forceinline__ float sum_of_four(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}

/// The largest (the sum) of all threads of the warp.
__device__ __forceinline__ float largest_of_warp(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}
__device__ __forceinline__ float sum_of_warp(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

}  // namespace cudaexec::cuda
