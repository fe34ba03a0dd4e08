// Running sums and products along lines. Driven by cpp/ops/cuda/scan.cpp.
#include <math.h>

#include "kernel.cuh"
#include "numbers.cuh"
#include "ops/cuda/scan_args.h"

namespace cudaexec::cuda {
namespace {

struct Add {
  static constexpr int kNeutral = 0;
  template <typename W>
  static __device__ __forceinline__ W apply(W x, W y) {
    return x + y;
  }
};
struct Multiply {
  static constexpr int kNeutral = 1;
  template <typename W>
  static __device__ __forceinline__ W apply(W x, W y) {
    return x * y;
  }
};

template <typename From, typename To, typename Op>
__device__ __forceinline__ void scan_line(const ScanArgs& a, Wide<To>* shared) {
  using W = Wide<To>;
  const From* values = static_cast<const From*>(a.values) + blockIdx.x * a.length;
  To* out = static_cast<To*>(a.out) + blockIdx.x * a.length;
  W before = Op::kNeutral;
  for (int64_t first = 0; first < a.length; first += kScanThreads) {
    const int64_t i = first + threadIdx.x;
    shared[threadIdx.x] = i < a.length ? static_cast<W>(widen(values[i])) : W(Op::kNeutral);
    __syncthreads();
    for (unsigned step = 1; step < kScanThreads; step *= 2) {
      const W left = threadIdx.x >= step ? shared[threadIdx.x - step] : W(Op::kNeutral);
      __syncthreads();
      shared[threadIdx.x] = Op::apply(left, shared[threadIdx.x]);
      __syncthreads();
    }
    if (i < a.length) out[i] = narrow(Op::apply(before, shared[threadIdx.x]), To{});
    before = Op::apply(before, shared[kScanThreads - 1]);
    __syncthreads();
  }
}

/// The first element of a column; false beyond the last one.
__device__ __forceinline__ bool own_column(const ScanColumnsArgs& a, int64_t* first) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (column >= a.columns) return false;
  *first = column / a.inner * a.count * a.inner + column % a.inner;
  return true;
}

struct Larger {
  template <typename W>
  static __device__ __forceinline__ bool replaces(W value, W best) {
    return value >= best;
  }
};
struct Smaller {
  template <typename W>
  static __device__ __forceinline__ bool replaces(W value, W best) {
    return value <= best;
  }
};

/// Of equal values the last one's index; NaN stays, with the index of the last NaN.
template <typename T, typename Order>
__device__ __forceinline__ void scan_extreme(const ScanColumnsArgs& a) {
  int64_t first = 0;
  if (!own_column(a, &first)) return;
  const T* values = static_cast<const T*>(a.values);
  Wide<T> best = widen(values[first]);
  int64_t best_at = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t at = first + i * a.inner;
    const Wide<T> value = widen(values[at]);
    if (is_nan(value) || (!is_nan(best) && Order::replaces(value, best))) {
      best = value;
      best_at = i;
    }
    static_cast<T*>(a.out)[at] = narrow(best, T{});
    a.indices[at] = best_at;
  }
}

__device__ __forceinline__ bool is_finite(float x) { return x - x == 0; }
__device__ __forceinline__ bool is_finite(double x) { return x - x == 0; }

/// log(sum(exp(x))) as a largest value and the sum of exp(x - largest).
template <typename T>
__device__ __forceinline__ void scan_log_sum(const ScanColumnsArgs& a) {
  using W = Wide<T>;
  int64_t first = 0;
  if (!own_column(a, &first)) return;
  W largest = -static_cast<W>(INFINITY);
  W sum = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t at = first + i * a.inner;
    const W value = widen(static_cast<const T*>(a.values)[at]);
    if (value <= largest) {
      if (is_finite(value)) sum += exp(value - largest);
    } else if (value > largest) {
      sum = is_finite(value) ? sum * exp(largest - value) + 1 : W{1};
      largest = value;
    } else if (!is_nan(largest)) {
      largest = value;
    }
    static_cast<T*>(a.out)[at] = narrow(is_finite(largest) ? largest + log(sum) : largest, T{});
  }
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_SCAN(kernel, From, To, Op)         \
  CUDAEXEC_KERNEL(kernel, ScanArgs, kScanThreads) { \
    __shared__ Wide<To> shared[kScanThreads];       \
    scan_line<From, To, Op>(a, shared);             \
  }
#define CUDAEXEC_SCANS(name, T)                    \
  CUDAEXEC_SCAN(cudaexec_cumsum_##name, T, T, Add) \
  CUDAEXEC_SCAN(cudaexec_cumprod_##name, T, T, Multiply)
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_SCANS)

// Integers become int64.
#define CUDAEXEC_INTEGER_SCANS(name, T)                  \
  CUDAEXEC_SCAN(cudaexec_cumsum_##name, T, int64_t, Add) \
  CUDAEXEC_SCAN(cudaexec_cumprod_##name, T, int64_t, Multiply)
CUDAEXEC_INTEGER_TYPES(CUDAEXEC_INTEGER_SCANS)
CUDAEXEC_INTEGER_SCANS(bool, Boolean)

#define CUDAEXEC_EXTREME_SCANS(name, T)                                    \
  CUDAEXEC_KERNEL(cudaexec_cummax_##name, ScanColumnsArgs, kScanThreads) { \
    scan_extreme<T, Larger>(a);                                            \
  }                                                                        \
  CUDAEXEC_KERNEL(cudaexec_cummin_##name, ScanColumnsArgs, kScanThreads) { \
    scan_extreme<T, Smaller>(a);                                           \
  }
CUDAEXEC_ALL_TYPES(CUDAEXEC_EXTREME_SCANS)

#define CUDAEXEC_LOG_SCAN(name, T)                                               \
  CUDAEXEC_KERNEL(cudaexec_logcumsumexp_##name, ScanColumnsArgs, kScanThreads) { \
    scan_log_sum<T>(a);                                                          \
  }
CUDAEXEC_FLOAT_TYPES(CUDAEXEC_LOG_SCAN)
