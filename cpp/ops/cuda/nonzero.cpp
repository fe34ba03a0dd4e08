// nonzero and what masks select.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/host_work.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/index.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/scan.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "nonzero";
constexpr const char* kMoves = "index";

/// Counts of set elements in front of each chunk of `packed`, and the total, on the device.
Tensor chunk_starts(CudaDevice& device, const Tensor& packed, const OpContext& context) {
  const int64_t count = packed.numel();
  const int64_t chunks = blocks_for(count, cuda::kCompactChunk);
  Tensor starts = empty(device, Dims{chunks + 1}, Dtype::kInt64, context);
  auto* counts = starts.data_as<int64_t>();
  const cuda::CountNonzeroArgs count_args{packed.data(), counts, count};
  launch(device, kImage, str("cudaexec_count_nonzero_", dtype_name(packed.dtype())), count_args,
         chunks, context.stream);
  const cuda::ScanCountsArgs scan_args{counts, chunks};
  launch(device, kImage, "cudaexec_scan_counts", scan_args, 1, context.stream);
  return starts;
}

void compact(CudaDevice& device, const Tensor& packed, const Tensor& starts, int64_t* positions,
             int64_t* ranks, StreamRef stream) {
  const cuda::CompactArgs args{packed.data(), starts.data_as<const int64_t>(), positions, ranks,
                               packed.numel()};
  launch(device, kImage, str("cudaexec_compact_", dtype_name(packed.dtype())), args,
         blocks_for(packed.numel(), cuda::kCompactChunk), stream);
}

/// The last element of `starts`, on the host.
int64_t read_total(const char* op, CudaDevice& device, const Tensor& starts, StreamRef stream) {
  if (device.is_capturing(stream)) {
    throw CaptureError(str(op,
                           ": the size of its result depends on values, which cannot be read "
                           "while a CUDA graph is being captured"));
  }
  int64_t total = 0;
  HostWork work(device, stream);
  const int64_t* last = starts.data_as<const int64_t>() + starts.numel() - 1;
  work.begin();
  device.copy(&total, Device{}, last, device.device(), sizeof total, stream);
  work.wait();
  return total;
}

/// Linear positions of the elements of `packed` that are not 0. Waits.
Tensor positions_of(const char* op, CudaDevice& device, const Tensor& packed,
                    const OpContext& context) {
  const Tensor starts = chunk_starts(device, packed, context);
  const int64_t total = read_total(op, device, starts, context.stream);
  Tensor positions = empty(device, Dims{total}, Dtype::kInt64, context);
  if (total == 0) return positions;
  compact(device, packed, starts, positions.data_as<int64_t>(), nullptr, context.stream);
  return positions;
}

Tensor packed_mask(const char* op, CudaDevice& device, const Tensor& mask, const Dims& sizes,
                   const OpContext& context) {
  ops::require_dtype(op, "mask", mask, {Dtype::kBool, Dtype::kUint8});
  return contiguous(device, ops::expand(op, mask, sizes), context);
}

}  // namespace

Tensor nonzero(const Tensor& self, const OpContext& context) {
  CudaDevice& device = common_device("nonzero", {{"self", &self}});
  const cuda::IndexShape shape = index_shape("nonzero", self.sizes());
  const Tensor packed = contiguous(device, self, context);
  const Tensor positions = positions_of("nonzero", device, packed, context);
  const int64_t count = positions.size(0);
  Tensor result =
      empty_strided(device, Dims{count, self.dim()}, Dims{1, count}, Dtype::kInt64, context);
  const cuda::UnravelArgs args{positions.data_as<const int64_t>(),
                               result.data_as<int64_t>(),
                               count,
                               shape,
                               1,
                               count,
                               nullptr,
                               0};
  if (shape.rank > 0) {
    launch(device, kImage, "cudaexec_unravel", args, blocks_for(count), context.stream);
  }
  return result;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill, const OpContext& context) {
  if (size < 0) {
    throw InputError(str("nonzero_static: size is ", size, "; expected 0 or more"));
  }
  CudaDevice& device = common_device("nonzero_static", {{"self", &self}});
  const cuda::IndexShape shape = index_shape("nonzero_static", self.sizes());
  const Tensor packed = contiguous(device, self, context);
  const Tensor starts = chunk_starts(device, packed, context);
  const Tensor positions = empty(device, Dims{packed.numel()}, Dtype::kInt64, context);
  compact(device, packed, starts, positions.data_as<int64_t>(), nullptr, context.stream);
  Tensor result = empty(device, Dims{size, self.dim()}, Dtype::kInt64, context);
  const cuda::UnravelArgs args{positions.data_as<const int64_t>(),
                               result.data_as<int64_t>(),
                               size,
                               shape,
                               self.dim(),
                               1,
                               starts.data_as<const int64_t>() + starts.numel() - 1,
                               fill};
  if (shape.rank > 0) {
    launch(device, kImage, "cudaexec_unravel", args, blocks_for(size), context.stream);
  }
  return result;
}

Tensor masked_select(const Tensor& self, const Tensor& mask, const OpContext& context) {
  CudaDevice& device = common_device("masked_select", {{"self", &self}, {"mask", &mask}});
  const Dims sizes =
      ops::broadcast_sizes("masked_select", std::vector<Dims>{self.sizes(), mask.sizes()});
  const Tensor flags = packed_mask("masked_select", device, mask, sizes, context);
  const Tensor values = contiguous(device, ops::expand("masked_select", self, sizes), context);
  const Tensor positions = positions_of("masked_select", device, flags, context);
  Tensor result = empty(device, positions.sizes(), self.dtype(), context);
  const cuda::TakeArgs args{values.data(), positions.data_as<const int64_t>(), result.data(),
                            positions.numel()};
  launch(device, kMoves, str("cudaexec_take_", self.itemsize()), args, blocks_for(args.count),
         context.stream);
  return result;
}

Tensor repeat_interleave(const Tensor& repeats, const int64_t* output_size,
                         const OpContext& context) {
  constexpr const char* kOp = "repeat_interleave";
  CudaDevice& device = common_device(kOp, {{"repeats", &repeats}});
  ops::require_index(kOp, "repeats", repeats);
  ops::require_rank(kOp, "repeats", repeats, 1);
  const int64_t length = repeats.numel();
  if (length == 0) return empty(device, Dims{0}, repeats.dtype(), context);
  const Tensor sums = cumsum(repeats, 0, Dtype::kInt64, context);
  const int64_t total =
      output_size != nullptr ? *output_size : read_total(kOp, device, sums, context.stream);
  if (total < 0) throw InputError(str(kOp, ": repeats add up to ", total, "; expected 0 or more"));
  Tensor result = empty(device, Dims{total}, repeats.dtype(), context);
  const cuda::RepeatArgs args{sums.data_as<const int64_t>(), result.data(), length, total,
                              repeats.dtype() == Dtype::kInt64};
  launch(device, kImage, "cudaexec_repeat", args, blocks_for(std::max(total, length)),
         context.stream);
  return result;
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source,
                      const OpContext& context) {
  CudaDevice& device =
      common_device("masked_scatter", {{"self", &self}, {"mask", &mask}, {"source", &source}});
  ops::require_same_dtype("masked_scatter", "self", self, "source", source);
  const Dims sizes =
      ops::broadcast_sizes("masked_scatter", std::vector<Dims>{self.sizes(), mask.sizes()});
  const Tensor flags = packed_mask("masked_scatter", device, mask, sizes, context);
  const Tensor starts = chunk_starts(device, flags, context);
  const Tensor ranks = empty(device, sizes, Dtype::kInt64, context);
  compact(device, flags, starts, nullptr, ranks.data_as<int64_t>(), context.stream);
  const Tensor old = contiguous(device, ops::expand("masked_scatter", self, sizes), context);
  const Tensor values = contiguous(device, source, context);
  Tensor result = empty(device, sizes, self.dtype(), context);
  const cuda::MaskedScatterArgs args{old.data(),    values.data(), ranks.data_as<const int64_t>(),
                                     result.data(), ranks.numel(), source.numel()};
  launch(device, kMoves, str("cudaexec_masked_scatter_", self.itemsize()), args,
         blocks_for(args.count), context.stream);
  return result;
}

}  // namespace cudaexec::gpu
