// Copies and fills of any strides, by element size. Arguments and launch shapes come from
// cpp/device/cuda/strided_copy.cpp.
#include "indexing.cuh"
#include "kernel.cuh"

namespace cudaexec::cuda {
namespace {

template <typename Element>
__device__ __forceinline__ void copy_elements(const StridedCopyArgs& args) {
  const uint32_t first = blockIdx.x * (kCopyThreads * kCopyUnroll) + threadIdx.x;
  Element values[kCopyUnroll];
  int64_t targets[kCopyUnroll];
  // All loads before the first store, so that they are in flight together.
#pragma unroll
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    const uint32_t index = first + u * kCopyThreads;
    if (index >= args.count) break;
    int64_t source = 0;
    int64_t target = 0;
    split_index(args, index, [&](int dim, uint32_t coordinate) {
      source += static_cast<int64_t>(coordinate) * args.src_strides[dim];
      target += static_cast<int64_t>(coordinate) * args.dst_strides[dim];
    });
    values[u] = *reinterpret_cast<const Element*>(static_cast<const char*>(args.src) + source);
    targets[u] = target;
  }
#pragma unroll
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    if (first + u * kCopyThreads >= args.count) break;
    *reinterpret_cast<Element*>(static_cast<char*>(args.dst) + targets[u]) = values[u];
  }
}

template <typename Element>
__device__ __forceinline__ void copy_elements_wide(const StridedCopyArgs& args) {
  const uint64_t first =
      static_cast<uint64_t>(blockIdx.x) * (kCopyThreads * kCopyUnroll) + threadIdx.x;
#pragma unroll 1
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    const uint64_t index = first + u * kCopyThreads;
    if (index >= args.count) return;
    int64_t source = 0;
    int64_t target = 0;
    split_index(args, index, [&](int dim, uint64_t coordinate) {
      source += static_cast<int64_t>(coordinate) * args.src_strides[dim];
      target += static_cast<int64_t>(coordinate) * args.dst_strides[dim];
    });
    *reinterpret_cast<Element*>(static_cast<char*>(args.dst) + target) =
        *reinterpret_cast<const Element*>(static_cast<const char*>(args.src) + source);
  }
}

template <typename Element>
__device__ __forceinline__ void fill_elements(const StridedFillArgs& args) {
  Element value;
  memcpy(&value, args.value, sizeof value);
  const uint64_t first =
      static_cast<uint64_t>(blockIdx.x) * (kCopyThreads * kCopyUnroll) + threadIdx.x;
#pragma unroll 1
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    const uint64_t index = first + u * kCopyThreads;
    if (index >= args.count) return;
    int64_t target = 0;
    split_index(args, index, [&](int dim, uint64_t coordinate) {
      target += static_cast<int64_t>(coordinate) * args.dst_strides[dim];
    });
    *reinterpret_cast<Element*>(static_cast<char*>(args.dst) + target) = value;
  }
}

template <typename Element>
__device__ __forceinline__ void transpose_elements(const TransposeCopyArgs& args) {
  __shared__ Element tile[kTile][kTile + 1];  // the extra column keeps banks apart
  uint32_t block = blockIdx.x;
  const uint32_t above_a = divide(block, args.tiles_a);
  const uint32_t first_a = (block - above_a * args.tiles_a.divisor) * kTile;
  block = divide(above_a, args.tiles_b);
  const uint32_t first_b = (above_a - block * args.tiles_b.divisor) * kTile;
  const char* src = static_cast<const char*>(args.src);
  char* dst = static_cast<char*>(args.dst);
  for (int dim = args.batch_rank - 1; dim >= 0; --dim) {
    const uint32_t quotient = divide(block, args.batch_sizes[dim]);
    const auto coordinate = static_cast<int64_t>(block - quotient * args.batch_sizes[dim].divisor);
    src += coordinate * args.src_strides[dim];
    dst += coordinate * args.dst_strides[dim];
    block = quotient;
  }
  // Rows of the tile run along b, contiguous in src.
  for (uint32_t row = threadIdx.y; row < kTile; row += kTileRows) {
    const uint32_t a = first_a + row;
    const uint32_t b = first_b + threadIdx.x;
    if (a < args.size_a && b < args.size_b) {
      tile[row][threadIdx.x] =
          reinterpret_cast<const Element*>(src + static_cast<int64_t>(a) * args.src_stride_a)[b];
    }
  }
  __syncthreads();
  for (uint32_t row = threadIdx.y; row < kTile; row += kTileRows) {
    const uint32_t b = first_b + row;
    const uint32_t a = first_a + threadIdx.x;
    if (a < args.size_a && b < args.size_b) {
      reinterpret_cast<Element*>(dst + static_cast<int64_t>(b) * args.dst_stride_b)[a] =
          tile[threadIdx.x][row];
    }
  }
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

#define CUDAEXEC_COPY_KERNELS(nbytes, Element)                                          \
  CUDAEXEC_KERNEL(cudaexec_strided_copy_##nbytes, StridedCopyArgs, kCopyThreads) {      \
    copy_elements<Element>(a);                                                          \
  }                                                                                     \
  CUDAEXEC_KERNEL(cudaexec_strided_copy_wide_##nbytes, StridedCopyArgs, kCopyThreads) { \
    copy_elements_wide<Element>(a);                                                     \
  }                                                                                     \
  CUDAEXEC_KERNEL(cudaexec_strided_fill_##nbytes, StridedFillArgs, kCopyThreads) {      \
    fill_elements<Element>(a);                                                          \
  }

#define CUDAEXEC_TRANSPOSE_KERNEL(nbytes, Element)                                         \
  CUDAEXEC_KERNEL(cudaexec_transpose_copy_##nbytes, TransposeCopyArgs, kTile* kTileRows) { \
    transpose_elements<Element>(a);                                                        \
  }

CUDAEXEC_COPY_KERNELS(1, uint8_t)
CUDAEXEC_COPY_KERNELS(2, uint16_t)
CUDAEXEC_COPY_KERNELS(4, uint32_t)
CUDAEXEC_COPY_KERNELS(8, uint64_t)
CUDAEXEC_COPY_KERNELS(16, uint4)
CUDAEXEC_TRANSPOSE_KERNEL(1, uint8_t)
CUDAEXEC_TRANSPOSE_KERNEL(2, uint16_t)
CUDAEXEC_TRANSPOSE_KERNEL(4, uint32_t)
CUDAEXEC_TRANSPOSE_KERNEL(8, uint64_t)
CUDAEXEC_TRANSPOSE_KERNEL(16, uint4)
