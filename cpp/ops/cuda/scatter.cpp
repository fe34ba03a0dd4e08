#include "ops/cuda/scatter.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/strided_copy.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/index.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sort.h"
#include "ops/operand.h"
#include "ops/scatter.h"
#include "tensor/convert.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "index";

/// A scalar as [1], so that there is a dimension to index.
Tensor at_least_1d(const Tensor& tensor) {
  if (tensor.dim() > 0) return tensor;
  return {tensor.storage(), tensor.offset(), Dims{1}, Dims{1}, tensor.dtype()};
}

void check_sizes(const char* op, const Tensor& out, size_t dim, const Tensor& index,
                 const Tensor* src) {
  bool fits = index.dim() == out.dim() && (src == nullptr || src->dim() == index.dim());
  for (size_t i = 0; fits && i < index.sizes().size(); ++i) {
    fits = (i == dim || index.size(i) <= out.size(i)) &&
           (src == nullptr || index.size(i) <= src->size(i));
  }
  if (fits) return;
  throw ShapeError(str(op, ": index ", list_str(index.sizes()), " does not fit self ",
                       list_str(out.sizes()), src != nullptr ? " and src " : "",
                       src != nullptr ? list_str(src->sizes()) : "", " apart from dimension ", dim,
                       "; expected equal ranks and no larger size"));
}

struct Scatter {
  CudaDevice& device;
  Tensor out;
  Tensor places;  // int64
  Tensor values;  // contiguous, sizes of the index; undefined where there is no source
};

/// Checks all, makes `out` equal to `self`, and finds the places.
Scatter prepare(const char* op, const Tensor& out, const Tensor& self, int64_t dim,
                const Tensor& index, const Tensor* src, const OpContext& context) {
  CudaDevice& device = common_device(op, {{"out", &out}, {"self", &self}, {"index", &index}});
  ops::require_index(op, "index", index);
  ops::require_same_dtype(op, "out", out, "self", self);
  Scatter made{device, at_least_1d(out), Tensor(), Tensor()};
  const auto at = static_cast<size_t>(ops::wrap_dim(op, dim, out.dim()));
  const Tensor whole_index = at_least_1d(index);
  if (index.numel() != 0 && src == nullptr) check_sizes(op, made.out, at, whole_index, nullptr);
  if (index.numel() != 0 && src != nullptr) {
    common_device(op, {{"out", &out}, {"src", src}});
    ops::require_same_dtype(op, "self", out, "src", *src);
    const Tensor whole = at_least_1d(*src);
    check_sizes(op, made.out, at, whole_index, &whole);
    made.values = contiguous(device,
                             Tensor(whole.storage(), whole.offset(), whole_index.sizes(),
                                    whole.strides(), whole.dtype()),
                             context);
  }
  if (out.data() != self.data()) copy(device, out, self, context.stream);
  if (index.numel() == 0) return made;
  const Tensor packed = contiguous(device, whole_index, context);
  made.places = empty(device, Dims{packed.numel()}, Dtype::kInt64, context);
  cuda::ScatterPlacesArgs args{};
  args.index = packed.data();
  args.places = made.places.data_as<int64_t>();
  args.count = packed.numel();
  args.shape = index_shape(op, packed.sizes());
  put_strides(args.out_strides, made.out.strides(), made.out.itemsize());
  args.size = made.out.size(at);
  args.dim = static_cast<int32_t>(at);
  args.wide = packed.dtype() == Dtype::kInt64;
  launch(device, kImage, "cudaexec_scatter_places", args, blocks_for(args.count), context.stream);
  return made;
}

cuda::Combine parse(std::string_view reduce) {
  if (reduce == "sum") return cuda::Combine::kSum;
  if (reduce == "prod") return cuda::Combine::kProd;
  if (reduce == "mean") return cuda::Combine::kMean;
  if (reduce == "amax") return cuda::Combine::kMax;
  if (reduce == "amin") return cuda::Combine::kMin;
  throw NotSupported(
      str("scatter_reduce: reduction '", reduce, "'; expected sum, prod, mean, amax or amin"));
}

bool adds_atomically(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64 || dtype == Dtype::kInt32 ||
         dtype == Dtype::kInt64;
}

}  // namespace

void write_at(CudaDevice& device, const Tensor& out, const Tensor& places, const void* values,
              bool single, StreamRef stream) {
  const cuda::WriteAtArgs args{out.data(), places.data_as<const int64_t>(), values, places.numel(),
                               single};
  launch(device, kImage, str("cudaexec_write_at_", out.itemsize()), args, blocks_for(args.count),
         stream);
}

void combine_at(CudaDevice& device, const Tensor& out, Tensor places, const Tensor& values,
                cuda::Combine combine, bool include_self, const OpContext& context) {
  const int64_t count = places.numel();
  const std::string dtype = dtype_name(out.dtype());
  if (combine == cuda::Combine::kSum && include_self && adds_atomically(out.dtype())) {
    const cuda::AddAtArgs args{out.data(), places.data_as<const int64_t>(), values.data(), count};
    return launch(device, kImage, "cudaexec_add_at_" + dtype, args, blocks_for(count),
                  context.stream);
  }
  if (count > std::numeric_limits<int32_t>::max()) {
    throw NotSupported(str("combining ", count, " elements by index: GPUs take up to 2147483647"));
  }
  // Places are not negative, so they are their own sorting keys.
  Tensor order = empty(device, Dims{count}, Dtype::kInt32, context);
  number_entries(device, order, context.stream);
  SortEntries entries{std::move(places), std::move(order)};
  sort_entries(device, entries, 1, count, context);
  const cuda::CombineRunsArgs args{out.data(),
                                   entries.keys.data_as<const int64_t>(),
                                   entries.places.data_as<const int32_t>(),
                                   values.data(),
                                   count,
                                   combine,
                                   include_self};
  launch(device, kImage, "cudaexec_combine_runs_" + dtype, args, blocks_for(count), context.stream);
}

void scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
             const Tensor& src, const OpContext& context) {
  const Scatter made = prepare("scatter", out, self, dim, index, &src, context);
  if (index.numel() == 0) return;
  write_at(made.device, made.out, made.places, made.values.data(), false, context.stream);
}

void scatter_value(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                   double value, const OpContext& context) {
  const Scatter made = prepare("scatter", out, self, dim, index, nullptr, context);
  if (index.numel() == 0) return;
  const Tensor single = empty(made.device, Dims{1}, out.dtype(), context);
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    const T element = convert_value<T>(value);
    const int64_t stride = static_cast<int64_t>(sizeof element);
    const int64_t size = 1;
    cuda_strided_fill(made.device, single.data(), {&stride, 1}, {&size, 1}, &element,
                      sizeof element, context.stream);
  });
  write_at(made.device, made.out, made.places, single.data(), true, context.stream);
}

void scatter_reduce(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& src, std::string_view reduce, bool include_self,
                    const OpContext& context) {
  const cuda::Combine combine = parse(reduce);
  Scatter made = prepare("scatter_reduce", out, self, dim, index, &src, context);
  if (index.numel() == 0) return;
  combine_at(made.device, made.out, std::move(made.places), made.values, combine, include_self,
             context);
}

Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self, const OpContext& context) {
  CudaDevice& device = common_device("index_reduce", {{"self", &self}});
  const auto [everywhere, rows] = ops::index_reduce_rows(self, dim, index, source, reduce);
  Tensor result = empty(device, self.sizes(), self.dtype(), context);
  scatter_reduce(result, self, dim, everywhere, rows, reduce, include_self, context);
  return result;
}

}  // namespace cudaexec::gpu
