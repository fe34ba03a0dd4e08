// Several copies of runs of bytes in one launch: the inputs or outputs of a captured call.
// Arguments come from cpp/device/cuda/batch_copy.cpp.
#include "device/cuda/kernel_args.h"
#include "kernel.cuh"

namespace cudaexec::cuda {
namespace {

/// Elements [first, last) of the copy, a block's share, by all threads of the block.
template <typename Element>
__device__ __forceinline__ void copy_run(void* dst, const void* src, uint64_t first,
                                         uint64_t last) {
  auto* target = static_cast<Element*>(dst);
  const auto* source = static_cast<const Element*>(src);
  constexpr unsigned kUnroll = 4;
  uint64_t index = first + threadIdx.x;
  for (; index + (kUnroll - 1) * kCopyThreads < last; index += kUnroll * kCopyThreads) {
    Element values[kUnroll];
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) values[u] = source[index + u * kCopyThreads];
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) target[index + u * kCopyThreads] = values[u];
  }
  for (; index < last; index += kCopyThreads) target[index] = source[index];
}

}  // namespace
}  // namespace cudaexec::cuda

using namespace cudaexec::cuda;

CUDAEXEC_KERNEL(cudaexec_batch_copy, BatchCopyArgs, kCopyThreads) {
  unsigned item = 0;
  while (item + 1 < a.count && blockIdx.x >= a.first_blocks[item + 1]) ++item;
  char* dst = static_cast<char*>(a.dst[item]);
  const char* src = a.src[item] != nullptr
                        ? static_cast<const char*>(a.src[item])
                        : reinterpret_cast<const char*>(a.bytes) + a.inline_offsets[item];
  const uint64_t begin = uint64_t{blockIdx.x - a.first_blocks[item]} * kBatchBlockBytes;
  const uint64_t left = a.nbytes[item] - begin;
  const uint64_t nbytes = left < kBatchBlockBytes ? left : uint64_t{kBatchBlockBytes};
  dst += begin;
  src += begin;
  const auto together = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src);
  // The widest elements that both addresses allow, then the bytes that are left.
  uint64_t done = 0;
  if (together % sizeof(uint4) == 0) {
    copy_run<uint4>(dst, src, 0, nbytes / sizeof(uint4));
    done = nbytes / sizeof(uint4) * sizeof(uint4);
  } else if (together % sizeof(uint32_t) == 0) {
    copy_run<uint32_t>(dst, src, 0, nbytes / sizeof(uint32_t));
    done = nbytes / sizeof(uint32_t) * sizeof(uint32_t);
  }
  copy_run<uint8_t>(dst, src, done, nbytes);
}
