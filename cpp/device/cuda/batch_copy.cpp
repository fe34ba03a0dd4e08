#include "device/cuda/batch_copy.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

size_t BatchCopy::add(void* dst, const void* src, size_t nbytes) {
  const size_t blocks = (nbytes + kBatchBlockBytes - 1) / kBatchBlockBytes;
  if (nbytes == 0 || !has_room() || blocks > (size_t{1} << 31) - 1 - blocks_) {
    throw InternalError(
        str("a batch of ", args_.count, " copies has no room for one of ", nbytes, " bytes"));
  }
  const size_t index = args_.count++;
  args_.first_blocks[index] = blocks_;
  args_.dst[index] = dst;
  args_.src[index] = src;
  args_.nbytes[index] = nbytes;
  blocks_ += static_cast<unsigned>(blocks);
  return index;
}

size_t BatchCopy::add_inline(void* dst, size_t nbytes) {
  if (!has_room(nbytes)) {
    throw InternalError(str("the arguments of a batch of copies cannot carry ", nbytes, " bytes"));
  }
  const size_t index = add(dst, nullptr, nbytes);
  args_.inline_offsets[index] = static_cast<uint32_t>(inline_used_);
  inline_used_ += rounded(nbytes);
  return index;
}

bool BatchCopy::set_dst(size_t index, void* dst) noexcept {
  return std::exchange(args_.dst[index], dst) != dst;
}

bool BatchCopy::set_src(size_t index, const void* src) noexcept {
  return std::exchange(args_.src[index], src) != src;
}

bool BatchCopy::set_inline(size_t index, const void* bytes) noexcept {
  unsigned char* place = args_.bytes + args_.inline_offsets[index];
  if (std::memcmp(place, bytes, args_.nbytes[index]) == 0) return false;
  std::memcpy(place, bytes, args_.nbytes[index]);
  return true;
}

CUfunction BatchCopy::kernel(CudaDevice& device) {
  return device.kernels().get(device, "batch_copy", "cudaexec_batch_copy");
}

void BatchCopy::launch(CudaDevice& device, StreamRef stream) const {
  if (empty()) return;
  void* parameters[] = {const_cast<BatchCopyArgs*>(&args_)};
  CUDAEXEC_CU(cuLaunchKernel, kernel(device), blocks_, 1, 1, kCopyThreads, 1, 1, 0,
              cu_stream(stream), parameters, nullptr);
}

}  // namespace cudaexec
