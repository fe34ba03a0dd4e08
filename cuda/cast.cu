// Conversion between any two dtypes, through double or int64: rare, so small rather than fast.
// Driven by cpp/ops/cuda/cast.cpp.
#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/cast_args.h"

namespace cudaexec::cuda {
namespace {

constexpr unsigned kCastThreads = 256;

struct Value {
  double real;
  int64_t whole;
  bool is_real;
};

__device__ __forceinline__ Value value_of(float x) { return {x, 0, true}; }
__device__ __forceinline__ Value value_of(double x) { return {x, 0, true}; }
__device__ __forceinline__ Value value_of(int64_t x) { return {0, x, false}; }

__device__ __forceinline__ void put(Value v, float* to) {
  *to = v.is_real ? static_cast<float>(v.real) : static_cast<float>(v.whole);
}
__device__ __forceinline__ void put(Value v, double* to) {
  *to = v.is_real ? v.real : static_cast<double>(v.whole);
}
__device__ __forceinline__ void put(Value v, Boolean* to) {
  to->bits = v.is_real ? v.real != 0 : v.whole != 0;
}
template <typename T>
__device__ __forceinline__ void put(Value v, T* to) {
  if constexpr (sizeof(Wide<T>) == 4) {  // 16-bit floating types
    float narrow_value = 0;
    put(v, &narrow_value);
    *to = narrow(narrow_value, T{});
  } else {
    *to = narrow(v.is_real ? static_cast<int64_t>(v.real) : v.whole, T{});
  }
}

#define CUDAEXEC_BY_CODE(X) \
  X(0, uint8_t)             \
  X(1, int8_t)              \
  X(2, int16_t)             \
  X(3, int32_t)             \
  X(4, int64_t)             \
  X(5, Float16)             \
  X(6, float)               \
  X(7, double)              \
  X(11, Boolean)            \
  X(15, Bfloat16)

__device__ __forceinline__ Value load(const CastArgs& a, int64_t i) {
  switch (a.from_dtype) {
#define CUDAEXEC_LOAD(code, T) \
  case code:                   \
    return value_of(widen(static_cast<const T*>(a.from)[i]));
    CUDAEXEC_BY_CODE(CUDAEXEC_LOAD)
    default:
      return {0, 0, false};
  }
}

__device__ __forceinline__ void store(const CastArgs& a, int64_t i, Value v) {
  switch (a.to_dtype) {
#define CUDAEXEC_STORE(code, T)        \
  case code:                           \
    put(v, static_cast<T*>(a.to) + i); \
    break;
    CUDAEXEC_BY_CODE(CUDAEXEC_STORE)
    default:
      break;
  }
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

CUDAEXEC_KERNEL(cudaexec_cast, CastArgs, kCastThreads) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCastThreads + threadIdx.x;
  if (i < a.count) store(a, i, load(a, i));
}
