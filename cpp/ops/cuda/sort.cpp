#include "ops/cuda/sort.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/strided_copy.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sort_args.h"
#include "ops/operand.h"
#include "tensor/convert.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "sort";

/// `self` with dimension `dim` last, packed.
struct Lines {
  Tensor packed;
  int64_t lines = 1;
  int64_t length = 1;
  size_t dim = 0;
};

Lines lines_of(const char* op, CudaDevice& device, const Tensor& self, int64_t dim,
               const OpContext& context) {
  Lines result;
  result.dim = static_cast<size_t>(ops::wrap_dim(op, dim, self.dim()));
  result.packed = contiguous(device, dim_last(self, result.dim), context);
  result.length = result.packed.sizes()[result.packed.sizes().size() - 1];
  result.lines = result.length == 0 ? 0 : self.numel() / result.length;
  if (result.length > std::numeric_limits<int32_t>::max()) {
    throw NotSupported(str(op, ": dimension ", result.dim, " of ", describe(self),
                           " is longer than GPUs sort, which is 2147483647"));
  }
  return result;
}

SortEntries sorted_entries(CudaDevice& device, const Lines& lines, bool descending,
                           const OpContext& context) {
  const int64_t count = lines.lines * lines.length;
  SortEntries entries{empty(device, Dims{count}, Dtype::kInt64, context),
                      empty(device, Dims{count}, Dtype::kInt32, context)};
  if (count == 0) return entries;
  const cuda::SortKeysArgs keys{lines.packed.data(),
                                entries.keys.data_as<uint64_t>(),
                                entries.places.data_as<int32_t>(),
                                count,
                                lines.length,
                                descending};
  launch(device, kImage, str("cudaexec_sort_keys_", dtype_name(lines.packed.dtype())), keys,
         blocks_for(count), context.stream);
  sort_entries(device, entries, lines.lines, lines.length, context);
  return entries;
}

/// A result of self's sizes but `kept` in the sorted dimension; the view has that one last.
struct Target {
  Tensor result;
  Tensor packed;
};

Target make_target(CudaDevice& device, const Tensor& self, const Lines& lines, int64_t kept,
                   bool like_self, Dtype dtype, const OpContext& context) {
  Dims sizes = self.sizes();
  if (!sizes.empty()) sizes[lines.dim] = kept;
  Target target;
  target.result = like_self ? empty_strided(device, sizes, ops::strides_like(self), dtype, context)
                            : empty(device, sizes, dtype, context);
  const Tensor last = dim_last(target.result, lines.dim);
  target.packed = last.is_contiguous() ? last : empty(device, last.sizes(), dtype, context);
  return target;
}

void finish(CudaDevice& device, const Target& target, const Lines& lines, StreamRef stream) {
  if (target.packed.storage() == target.result.storage()) return;
  copy(device, dim_last(target.result, lines.dim), target.packed, stream);
}

ValuesAndIndices take_first(CudaDevice& device, const Tensor& self, const Lines& lines,
                            const SortEntries& entries, int64_t first, int64_t kept, bool like_self,
                            const OpContext& context) {
  const Target values = make_target(device, self, lines, kept, like_self, self.dtype(), context);
  const Target indices = make_target(device, self, lines, kept, like_self, Dtype::kInt64, context);
  const cuda::SortGatherArgs args{lines.packed.data(),
                                  entries.places.data_as<const int32_t>() + first,
                                  values.packed.data(),
                                  indices.packed.data_as<int64_t>(),
                                  lines.lines * kept,
                                  lines.length,
                                  kept};
  launch(device, kImage, str("cudaexec_sort_gather_", self.itemsize()), args,
         blocks_for(args.count), context.stream);
  finish(device, values, lines, context.stream);
  finish(device, indices, lines, context.stream);
  return {values.result, indices.result};
}

int64_t length_of(const Tensor& self, size_t dim) { return self.dim() == 0 ? 1 : self.size(dim); }

Tensor without_dim(const Tensor& tensor, size_t dim) {
  if (tensor.dim() == 0) return tensor;
  Dims sizes(tensor.sizes().size() - 1);
  Dims strides(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = tensor.size(i < dim ? i : i + 1);
    strides[i] = tensor.stride(i < dim ? i : i + 1);
  }
  return {tensor.storage(), tensor.offset(), std::move(sizes), std::move(strides), tensor.dtype()};
}

}  // namespace

void number_entries(CudaDevice& device, const Tensor& places, StreamRef stream) {
  const cuda::SortNumberArgs args{places.data_as<int32_t>(), places.numel()};
  launch(device, kImage, "cudaexec_sort_number", args, blocks_for(args.count), stream);
}

void sort_entries(CudaDevice& device, SortEntries& entries, int64_t lines, int64_t length,
                  const OpContext& context) {
  const int64_t count = lines * length;
  if (count == 0) return;
  const int64_t chunks = blocks_for(length, cuda::kSortChunk);
  const cuda::SortChunksArgs chunk_args{entries.keys.data_as<uint64_t>(),
                                        entries.places.data_as<int32_t>(), length, chunks};
  launch(device, kImage, "cudaexec_sort_chunks", chunk_args, lines * chunks, context.stream);
  if (chunks == 1) return;
  SortEntries other{empty(device, entries.keys.sizes(), Dtype::kInt64, context),
                    empty(device, entries.places.sizes(), Dtype::kInt32, context)};
  for (int64_t run = cuda::kSortChunk; run < length; run *= 2) {
    const cuda::SortMergeArgs args{entries.keys.data_as<const uint64_t>(),
                                   entries.places.data_as<const int32_t>(),
                                   other.keys.data_as<uint64_t>(),
                                   other.places.data_as<int32_t>(),
                                   count,
                                   length,
                                   run};
    launch(device, kImage, "cudaexec_sort_merge", args, blocks_for(count), context.stream);
    std::swap(entries, other);
  }
}

ValuesAndIndices sort(const Tensor& self, int64_t dim, bool descending, const OpContext& context) {
  CudaDevice& device = common_device("sort", {{"self", &self}});
  const Lines lines = lines_of("sort", device, self, dim, context);
  const SortEntries entries = sorted_entries(device, lines, descending, context);
  return take_first(device, self, lines, entries, 0, length_of(self, lines.dim), true, context);
}

ValuesAndIndices topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                      const OpContext& context) {
  CudaDevice& device = common_device("topk", {{"self", &self}});
  const auto at = static_cast<size_t>(ops::wrap_dim("topk", dim, self.dim()));
  if (k < 0 || k > length_of(self, at)) {
    throw InputError(str("topk: k is ", k, "; expected 0 to ", length_of(self, at),
                         ", the size of dimension ", at, " of ", describe(self)));
  }
  const Lines lines = lines_of("topk", device, self, dim, context);
  const SortEntries entries = sorted_entries(device, lines, largest, context);
  return take_first(device, self, lines, entries, 0, k, false, context);
}

ValuesAndIndices kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                          const OpContext& context) {
  CudaDevice& device = common_device("kthvalue", {{"self", &self}});
  const auto at = static_cast<size_t>(ops::wrap_dim("kthvalue", dim, self.dim()));
  if (k < 1 || k > length_of(self, at)) {
    throw InputError(str("kthvalue: k is ", k, "; expected 1 to ", length_of(self, at),
                         ", the size of dimension ", at, " of ", describe(self)));
  }
  const Lines lines = lines_of("kthvalue", device, self, dim, context);
  const SortEntries entries = sorted_entries(device, lines, false, context);
  auto [values, indices] = take_first(device, self, lines, entries, k - 1, 1, false, context);
  if (keepdim) return {values, indices};
  return {without_dim(values, lines.dim), without_dim(indices, lines.dim)};
}

Tensor median(const Tensor& self, bool ignore_nan, const OpContext& context) {
  CudaDevice& device = common_device("median", {{"self", &self}});
  Tensor result = empty(device, Dims{}, self.dtype(), context);
  const Tensor packed = contiguous(device, self, context);
  const int64_t count = packed.numel();
  if (count == 0) {
    dispatch_dtype(self.dtype(), [&]<typename T>(T) {
      const T nothing = convert_value<T>(std::numeric_limits<float>::quiet_NaN());
      cuda_strided_fill(device, result.data(), {}, {}, &nothing, sizeof nothing, context.stream);
    });
    return result;
  }
  const Tensor flat(packed.storage(), packed.offset(), Dims{count}, Dims{1}, packed.dtype());
  const Lines lines = lines_of("median", device, flat, 0, context);
  const SortEntries entries = sorted_entries(device, lines, false, context);
  const cuda::SortMedianArgs args{packed.data(),
                                  entries.keys.data_as<const uint64_t>(),
                                  entries.places.data_as<const int32_t>(),
                                  result.data(),
                                  count,
                                  is_floating_point(self.dtype()),
                                  ignore_nan};
  launch(device, kImage, str("cudaexec_sort_median_", self.itemsize()), args, 1, context.stream, 1);
  return result;
}

}  // namespace cudaexec::gpu
