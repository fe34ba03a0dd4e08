// Running sums and products along lines. Driven by cpp/ops/cuda/scan.cpp.
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
