// Arguments of the kernels in cuda/, included by both compilers: plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudaexec::cuda {

inline constexpr int kMaxKernelRank = 8;
inline constexpr unsigned kCopyThreads = 256;  // of a block
inline constexpr unsigned kCopyUnroll = 4;     // elements of a thread
inline constexpr unsigned kTile = 32;          // side of the transpose tile
inline constexpr unsigned kTileRows = 8;       // rows of threads over it

/// Division by a constant as a multiplication: n / divisor for n < 2^31.
struct FastDivisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;
};

/// dst[i] = src[i] for every index of `sizes`; strides in bytes, the last dimension varies fastest.
struct StridedCopyArgs {
  void* dst;
  const void* src;
  uint64_t count;  // elements
  int32_t rank;    // 1 to kMaxKernelRank
  uint64_t sizes[kMaxKernelRank];
  FastDivisor divisors[kMaxKernelRank];  // of the sizes; valid if count < 2^31
  int64_t dst_strides[kMaxKernelRank];
  int64_t src_strides[kMaxKernelRank];
};

/// dst[i] = value; the first itemsize bytes of `value` are the element.
struct StridedFillArgs {
  void* dst;
  uint64_t count;
  int32_t rank;
  uint64_t sizes[kMaxKernelRank];
  int64_t dst_strides[kMaxKernelRank];
  unsigned char value[16];
};

/// A copy whose dimension `a` is contiguous in dst and `b` in src, through tiles in shared memory;
/// `batch` runs over the other dimensions. One block per tile: grid.x = batch * tiles_b * tiles_a.
struct TransposeCopyArgs {
  void* dst;
  const void* src;
  uint32_t size_a, size_b;
  int64_t src_stride_a;  // bytes from one a to the next in src
  int64_t dst_stride_b;
  FastDivisor tiles_a, tiles_b;
  int32_t batch_rank;  // 0 to kMaxKernelRank
  FastDivisor batch_sizes[kMaxKernelRank];
  int64_t dst_strides[kMaxKernelRank];
  int64_t src_strides[kMaxKernelRank];
};

inline constexpr unsigned kBatchItems = 16;          // copies of one launch
inline constexpr unsigned kBatchInline = 512;        // bytes that arguments may carry themselves
inline constexpr unsigned kBatchBlockBytes = 16384;  // of a block of kCopyThreads threads

/// Copies several runs of bytes at once. A null `src` means that the bytes are in `bytes`, from
/// `inline_offsets` on, so that values of the host need no memory that a GPU can read.
struct BatchCopyArgs {
  uint32_t count;                        // 1 to kBatchItems
  uint32_t first_blocks[kBatchItems];    // the first block of each copy, rising
  uint32_t inline_offsets[kBatchItems];  // multiples of 16
  void* dst[kBatchItems];
  const void* src[kBatchItems];
  uint64_t nbytes[kBatchItems];
  alignas(16) unsigned char bytes[kBatchInline];
};

}  // namespace cudaexec::cuda
