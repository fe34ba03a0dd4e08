// Element types and how they are computed with: 16-bit floating types in float32, integers in
// int64, bool as 0 or 1.
#pragma once

#include <cstdint>

#include "kernel.cuh"

#if defined(CUDAEXEC_EMULATION)
#include "tensor/half.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace cudaexec::cuda {

struct Float16 {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
struct Boolean {
  uint8_t bits;
};

#if defined(CUDAEXEC_EMULATION)
inline float widen(Float16 x) { return half_bits_to_float(x.bits); }
inline float widen(Bfloat16 x) { return bfloat_bits_to_float(x.bits); }
inline Float16 narrow(float x, Float16) { return {float_to_half_bits(x)}; }
inline Bfloat16 narrow(float x, Bfloat16) { return {float_to_bfloat_bits(x)}; }
#else
__device__ __forceinline__ float widen(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ __forceinline__ float widen(Bfloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
__device__ __forceinline__ Float16 narrow(float x, Float16) {
  return {__half_as_ushort(__float2half_rn(x))};
}
__device__ __forceinline__ Bfloat16 narrow(float x, Bfloat16) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
#endif
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ int64_t widen(int64_t x) { return x; }
__device__ __forceinline__ int64_t widen(int32_t x) { return x; }
__device__ __forceinline__ int64_t widen(int16_t x) { return x; }
__device__ __forceinline__ int64_t widen(int8_t x) { return x; }
__device__ __forceinline__ int64_t widen(uint8_t x) { return x; }
__device__ __forceinline__ int64_t widen(Boolean x) { return x.bits != 0; }
__device__ __forceinline__ float narrow(float x, float) { return x; }
__device__ __forceinline__ double narrow(double x, double) { return x; }
__device__ __forceinline__ int64_t narrow(int64_t x, int64_t) { return x; }
__device__ __forceinline__ int32_t narrow(int64_t x, int32_t) { return static_cast<int32_t>(x); }
__device__ __forceinline__ int16_t narrow(int64_t x, int16_t) { return static_cast<int16_t>(x); }
__device__ __forceinline__ int8_t narrow(int64_t x, int8_t) { return static_cast<int8_t>(x); }
__device__ __forceinline__ uint8_t narrow(int64_t x, uint8_t) { return static_cast<uint8_t>(x); }
__device__ __forceinline__ Boolean narrow(int64_t x, Boolean) {
  return {static_cast<uint8_t>(x != 0)};
}

/// The type that elements of T are computed in.
template <typename T>
using Wide = decltype(widen(T{}));

template <typename W>
__device__ __forceinline__ bool is_nan(W x) {
  return x != x;
}

}  // namespace cudaexec::cuda

// X(the dtype's name, T)
#define CUDAEXEC_FLOAT_TYPES(X)           \
  X(float16, ::cudaexec::cuda::Float16)   \
  X(bfloat16, ::cudaexec::cuda::Bfloat16) \
  X(float32, float)                       \
  X(float64, double)
#define CUDAEXEC_INTEGER_TYPES(X) \
  X(uint8, uint8_t)               \
  X(int8, int8_t)                 \
  X(int16, int16_t)               \
  X(int32, int32_t)               \
  X(int64, int64_t)
#define CUDAEXEC_ALL_TYPES(X) \
  CUDAEXEC_FLOAT_TYPES(X)     \
  CUDAEXEC_INTEGER_TYPES(X)   \
  X(bool, ::cudaexec::cuda::Boolean)
