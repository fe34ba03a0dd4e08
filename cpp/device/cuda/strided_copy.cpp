#include "device/cuda/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/device_kernels.h"
#include "device/cuda/kernel_args.h"
#include "device/cuda/strided_copy_plan.h"

namespace cudaexec {

using namespace cuda;

namespace {

constexpr const char* kImage = "strided_copy";
constexpr int64_t kNarrow = int64_t{1} << 31;  // element counts that 32-bit indices reach
constexpr uint64_t kMaxBlocks = (uint64_t{1} << 31) - 1;
constexpr uint64_t kBlockElements = uint64_t{kCopyThreads} * kCopyUnroll;

/// For 1 <= divisor < 2^31 (divide() in cuda/indexing.cuh).
FastDivisor fast_divisor(int64_t divisor) {
  FastDivisor fast;
  fast.divisor = static_cast<uint32_t>(divisor);
  while ((uint64_t{1} << fast.shift) < static_cast<uint64_t>(divisor)) ++fast.shift;
  const uint64_t excess = (uint64_t{1} << fast.shift) - static_cast<uint64_t>(divisor);
  fast.multiplier = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(divisor) + 1);
  return fast;
}

class StreamSink final : public CopySink {
 public:
  StreamSink(CudaDevice& device, StreamRef stream) noexcept : device_(device), stream_(stream) {}
  void kernel(CUfunction function, unsigned blocks, unsigned block_x, unsigned block_y,
              const void* args, size_t /*nbytes*/) override {
    void* parameters[] = {const_cast<void*>(args)};
    CUDAEXEC_CU(cuLaunchKernel, function, blocks, 1, 1, block_x, block_y, 1, 0, cu_stream(stream_),
                parameters, nullptr);
  }
  void run(void* dst, const void* src, size_t nbytes) override {
    device_.copy(dst, device_.device(), src, device_.device(), nbytes, stream_);
  }

 private:
  CudaDevice& device_;
  StreamRef stream_;
};

template <typename Args>
void launch(CudaDevice& device, const std::string& kernel, Args& args, uint64_t blocks,
            unsigned block_x, unsigned block_y, CopySink& sink) {
  if (blocks > kMaxBlocks) {
    throw NotSupported(str("a strided copy of ", blocks, " blocks is larger than a GPU's grid"));
  }
  const CUfunction function = device.kernels().get(device, kImage, kernel.c_str());
  sink.kernel(function, static_cast<unsigned>(blocks), block_x, block_y, &args, sizeof args);
}

static_assert(offsetof(StridedCopyArgs, dst) == 0 && offsetof(TransposeCopyArgs, dst) == 0);
static_assert(offsetof(StridedCopyArgs, src) == sizeof(void*) &&
              offsetof(TransposeCopyArgs, src) == sizeof(void*));

uint64_t blocks_for(int64_t count) {
  return (static_cast<uint64_t>(count) + kBlockElements - 1) / kBlockElements;
}

void copy_elements(CudaDevice& device, void* dst, const void* src, const StridedPlan& plan,
                   std::span<const StridedDim> dims, CopySink& sink) {
  StridedCopyArgs args{};
  args.dst = dst;
  args.src = src;
  int64_t count = 1;
  for (const StridedDim& dim : dims) count *= dim.size;
  args.count = static_cast<uint64_t>(count);
  args.rank = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    args.sizes[i] = static_cast<uint64_t>(dims[i].size);
    if (count < kNarrow) args.divisors[i] = fast_divisor(dims[i].size);
    args.dst_strides[i] = dims[i].dst_stride;
    args.src_strides[i] = dims[i].src_stride;
  }
  const char* kind = count < kNarrow ? "cudaexec_strided_copy_" : "cudaexec_strided_copy_wide_";
  launch(device, str(kind, plan.itemsize), args, blocks_for(count), kCopyThreads, 1, sink);
}

/// Calls `body(dst offset, src offset)` for every index of the outer dimensions beyond what a
/// kernel takes.
template <typename Body>
void for_outer(std::span<const StridedDim> outer, const Body& body) {
  std::vector<int64_t> index(outer.size(), 0);
  for (;;) {
    int64_t dst_offset = 0;
    int64_t src_offset = 0;
    for (size_t i = 0; i < outer.size(); ++i) {
      dst_offset += index[i] * outer[i].dst_stride;
      src_offset += index[i] * outer[i].src_stride;
    }
    body(dst_offset, src_offset);
    size_t dim = outer.size();
    while (dim > 0 && ++index[dim - 1] == outer[dim - 1].size) index[--dim] = 0;
    if (dim == 0) return;
  }
}

bool transpose(CudaDevice& device, void* dst, const void* src, const StridedPlan& plan,
               CopySink& sink) {
  const StridedDim& a = plan.dims.back();
  const StridedDim& b = plan.dims[plan.transposed];
  TransposeCopyArgs args{};
  args.dst = dst;
  args.src = src;
  if (a.size >= kNarrow || b.size >= kNarrow) return false;
  args.size_a = static_cast<uint32_t>(a.size);
  args.size_b = static_cast<uint32_t>(b.size);
  args.src_stride_a = a.src_stride;
  args.dst_stride_b = b.dst_stride;
  const int64_t tiles_a = (a.size + kTile - 1) / kTile;
  const int64_t tiles_b = (b.size + kTile - 1) / kTile;
  uint64_t blocks = static_cast<uint64_t>(tiles_a) * static_cast<uint64_t>(tiles_b);
  for (size_t i = 0; i + 1 < plan.dims.size(); ++i) {
    if (i == plan.transposed) continue;
    const StridedDim& dim = plan.dims[i];
    if (dim.size >= kNarrow) return false;
    blocks *= static_cast<uint64_t>(dim.size);
    args.batch_sizes[args.batch_rank] = fast_divisor(dim.size);
    args.dst_strides[args.batch_rank] = dim.dst_stride;
    args.src_strides[args.batch_rank] = dim.src_stride;
    ++args.batch_rank;
  }
  if (blocks > kMaxBlocks) return false;
  args.tiles_a = fast_divisor(tiles_a);
  args.tiles_b = fast_divisor(tiles_b);
  launch(device, str("cudaexec_transpose_copy_", plan.itemsize), args, blocks, kTile, kTileRows,
         sink);
  return true;
}

std::vector<StridedDim> dims_of(std::span<const int64_t> sizes,
                                std::span<const int64_t> dst_strides,
                                std::span<const int64_t> src_strides) {
  if (sizes.size() != dst_strides.size() || sizes.size() != src_strides.size()) {
    throw InternalError(str("a strided copy of ", sizes.size(), " sizes with ", dst_strides.size(),
                            " and ", src_strides.size(), " strides"));
  }
  std::vector<StridedDim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims.push_back({sizes[i], dst_strides[i], src_strides[i]});
  }
  return dims;
}

std::byte* at(void* base, int64_t offset) { return static_cast<std::byte*>(base) + offset; }
const std::byte* at(const void* base, int64_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}

/// Fills a run through the driver, which needs no kernel of ours; false where it has no such fill.
bool fill_flat(void* dst, size_t count, const void* value, size_t itemsize, StreamRef stream) {
  const auto* bytes = static_cast<const unsigned char*>(value);
  if (std::all_of(bytes, bytes + itemsize, [bytes](unsigned char b) { return b == bytes[0]; })) {
    CUDAEXEC_CU(cuMemsetD8Async, cu_pointer(dst), bytes[0], count * itemsize, cu_stream(stream));
  } else if (itemsize == 2) {
    unsigned short word = 0;
    std::memcpy(&word, value, sizeof word);
    CUDAEXEC_CU(cuMemsetD16Async, cu_pointer(dst), word, count, cu_stream(stream));
  } else if (itemsize == 4) {
    unsigned word = 0;
    std::memcpy(&word, value, sizeof word);
    CUDAEXEC_CU(cuMemsetD32Async, cu_pointer(dst), word, count, cu_stream(stream));
  } else {
    return false;
  }
  return true;
}

void check_itemsize(size_t itemsize) {
  if (itemsize != 1 && itemsize != 2 && itemsize != 4 && itemsize != 8 && itemsize != 16) {
    throw InternalError(str("a strided copy of elements of ", itemsize, " bytes"));
  }
}

}  // namespace

void cuda_strided_copy(CudaDevice& device, void* dst, std::span<const int64_t> dst_strides,
                       const void* src, std::span<const int64_t> src_strides,
                       std::span<const int64_t> sizes, size_t itemsize, StreamRef stream) {
  StreamSink sink(device, stream);
  cuda_strided_copy(device, dst, dst_strides, src, src_strides, sizes, itemsize, sink);
}

void cuda_strided_copy(CudaDevice& device, void* dst, std::span<const int64_t> dst_strides,
                       const void* src, std::span<const int64_t> src_strides,
                       std::span<const int64_t> sizes, size_t itemsize, CopySink& sink) {
  check_itemsize(itemsize);
  const StridedPlan plan =
      plan_strided_copy(dims_of(sizes, dst_strides, src_strides), itemsize,
                        reinterpret_cast<uintptr_t>(dst), reinterpret_cast<uintptr_t>(src));
  const CudaGuard guard(device);
  switch (plan.method) {
    case StridedPlan::Method::kNothing:
      return;
    case StridedPlan::Method::kFlat:
      sink.run(dst, src, static_cast<size_t>(plan.count()) * itemsize);
      return;
    case StridedPlan::Method::kTranspose:
      if (transpose(device, dst, src, plan, sink)) return;
      break;
    case StridedPlan::Method::kElements:
      break;
  }
  const std::span<const StridedDim> dims = plan.dims;
  const size_t outer = dims.size() > kMaxKernelRank ? dims.size() - kMaxKernelRank : 0;
  for_outer(dims.first(outer), [&](int64_t dst_offset, int64_t src_offset) {
    copy_elements(device, at(dst, dst_offset), at(src, src_offset), plan, dims.subspan(outer),
                  sink);
  });
}

void cuda_strided_fill(CudaDevice& device, void* dst, std::span<const int64_t> dst_strides,
                       std::span<const int64_t> sizes, const void* value, size_t itemsize,
                       StreamRef stream) {
  check_itemsize(itemsize);
  // A copy from one run with the same strides plans the same way; its elements stay single.
  const StridedPlan plan = plan_strided_copy(dims_of(sizes, dst_strides, dst_strides), itemsize,
                                             reinterpret_cast<uintptr_t>(dst), itemsize);
  if (plan.method == StridedPlan::Method::kNothing) return;
  const CudaGuard guard(device);
  StreamSink sink(device, stream);
  if (plan.method == StridedPlan::Method::kFlat &&
      fill_flat(dst, static_cast<size_t>(plan.count()), value, itemsize, stream)) {
    return;
  }
  const std::span<const StridedDim> dims = plan.dims;
  const size_t outer = dims.size() > kMaxKernelRank ? dims.size() - kMaxKernelRank : 0;
  for_outer(dims.first(outer), [&](int64_t dst_offset, int64_t) {
    StridedFillArgs args{};
    args.dst = at(dst, dst_offset);
    int64_t count = 1;
    for (const StridedDim& dim : dims.subspan(outer)) {
      args.sizes[args.rank] = static_cast<uint64_t>(dim.size);
      args.dst_strides[args.rank] = dim.dst_stride;
      ++args.rank;
      count *= dim.size;
    }
    args.count = static_cast<uint64_t>(count);
    std::memcpy(args.value, value, itemsize);
    launch(device, str("cudaexec_strided_fill_", itemsize), args, blocks_for(count), kCopyThreads,
           1, sink);
  });
}

}  // namespace cudaexec
