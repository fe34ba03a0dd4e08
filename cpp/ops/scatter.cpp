#include "ops/scatter.h"

#include <algorithm>
#include <optional>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "ops/scatter_reduce.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {
namespace {

// A scalar as [1], so that the walk always has a dimension to index.
Tensor at_least_1d(const Tensor& tensor) {
  if (tensor.dim() > 0) return tensor;
  return {tensor.storage(), tensor.offset(), Dims{1}, Dims{1}, tensor.dtype()};
}

struct Operands {
  const char* op = "";
  Tensor out;    // 1-D or more
  Tensor index;  // int64, contiguous
  Tensor src;    // contiguous, sizes of index; undefined where there is no source
  size_t dim = 0;
};

void check_sizes(const char* op, const Operands& operands, const Tensor* src) {
  const Tensor& index = operands.index;
  const bool ranks = index.dim() == operands.out.dim() && (!src || src->dim() == index.dim());
  bool fits = ranks;
  for (size_t i = 0; fits && i < index.sizes().size(); ++i) {
    fits = (i == operands.dim || index.size(i) <= operands.out.size(i)) &&
           (!src || index.size(i) <= src->size(i));
  }
  if (!fits) {
    throw ShapeError(str(op, ": index ", list_str(index.sizes()), " does not fit self ",
                         list_str(operands.out.sizes()), src ? " and src " : "",
                         src ? list_str(src->sizes()) : "", " apart from dimension ", operands.dim,
                         "; expected equal ranks and no larger size"));
  }
}

Operands prepare(const char* op, const Tensor& out, int64_t dim, const Tensor& index,
                 const Tensor* src, const OpContext& context) {
  require_index(op, "index", index);
  Operands operands;
  operands.op = op;
  operands.out = at_least_1d(out);
  operands.dim = static_cast<size_t>(wrap_dim(op, dim, out.dim()));
  operands.index = at_least_1d(index);
  if (index.numel() == 0) return operands;
  if (src == nullptr) {
    check_sizes(op, operands, nullptr);
  } else {
    require_same_dtype(op, "self", out, "src", *src);
    const Tensor whole = at_least_1d(*src);
    check_sizes(op, operands, &whole);
    const Tensor part(whole.storage(), whole.offset(), operands.index.sizes(), whole.strides(),
                      whole.dtype());
    operands.src = contiguous(part, context);
  }
  operands.index = contiguous_as(operands.index, Dtype::kInt64, context);
  return operands;
}

[[noreturn]] void throw_out_of_range(const Operands& operands, int64_t value) {
  throw InputError(str(operands.op, ": index ", value, " is out of range for dimension ",
                       operands.dim, " of size ", operands.out.size(operands.dim),
                       "; expected 0 to ", operands.out.size(operands.dim) - 1));
}

// Calls visit(out_element, position) for every position of the index, in order for any one element
// of `target`, which has the sizes of out. Threads share what lies around the indexed dimension.
template <typename T, typename Visit>
void for_positions(const Operands& operands, const Tensor& target, Visit visit) {
  const Dims& sizes = operands.index.sizes();
  const Dims& strides = operands.index.strides();
  const auto axes = [&](size_t first, size_t last) {
    return pair_axes(sizes, target.strides(), 1, strides, 1, first, last);
  };
  const auto outer = axes(0, operands.dim);
  auto inner = axes(operands.dim + 1, sizes.size());
  PairAxis row;
  if (!inner.empty()) {
    row = inner.back();
    inner.pop_back();
  }
  int64_t units = 1;
  for (const auto& axis : outer) units *= axis.size;
  int64_t rows = 1;
  for (const auto& axis : inner) rows *= axis.size;
  constexpr int64_t kColumns = 512;
  const int64_t blocks = (row.size + kColumns - 1) / kColumns;
  const int64_t count = sizes[operands.dim];
  const int64_t index_step = strides[operands.dim];
  const int64_t out_step = target.stride(operands.dim);
  const int64_t limit = operands.out.size(operands.dim);
  const auto* index = operands.index.data_as<const int64_t>();
  auto* out = target.data_as<T>();

  const int64_t work = count * std::min(row.size, kColumns);
  parallel_for(units * rows * blocks, std::max<int64_t>(1, kGrain / work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t first = unit % blocks * kColumns;
                   const int64_t last = std::min(row.size, first + kColumns);
                   int64_t out_at = 0;
                   int64_t index_at = 0;
                   pair_offsets(inner, unit / blocks % rows, out_at, index_at);
                   pair_offsets(outer, unit / blocks / rows, out_at, index_at);
                   for (int64_t i = 0; i < count; ++i) {
                     for (int64_t c = first; c < last; ++c) {
                       const int64_t position = index_at + i * index_step + c * row.b;
                       const int64_t value = index[position];
                       if (value < 0 || value >= limit) throw_out_of_range(operands, value);
                       visit(out[out_at + value * out_step + c * row.a], position);
                     }
                   }
                 }
               });
}

void copy_self(const Tensor& out, const Tensor& self) {
  if (out.data() != self.data()) strided_copy(out, self);
}

Reduce parse_reduce(const char* op, std::string_view name) {
  if (name == "sum") return Reduce::kSum;
  if (name == "prod") return Reduce::kProd;
  if (name == "mean") return Reduce::kMean;
  if (name == "amax") return Reduce::kAmax;
  if (name == "amin") return Reduce::kAmin;
  throw NotSupported(
      str(op, ": reduction '", name, "' is unknown; expected sum, prod, mean, amax or amin"));
}

template <typename T>
void divide_by_counts(const Operands& operands, bool include_self, const OpContext& context) {
  const Tensor counts = empty(operands.out.sizes(), Dtype::kInt64, context);
  std::fill_n(counts.data_as<int64_t>(), counts.numel(), include_self ? 1 : 0);
  for_positions<int64_t>(operands, counts, [](int64_t& count, int64_t) { ++count; });
  const auto axes = pair_axes(operands.out.sizes(), operands.out.strides(), 1, counts.strides(), 1,
                              0, operands.out.sizes().size());
  auto* out = operands.out.data_as<T>();
  const auto* count = counts.data_as<const int64_t>();
  parallel_for(counts.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t out_at = 0;
      int64_t count_at = 0;
      pair_offsets(axes, i, out_at, count_at);
      if (count[count_at] > 1) out[out_at] = divide(out[out_at], count[count_at]);
    }
  });
}

template <typename T>
void reduce_into(const Operands& operands, Reduce reduce, bool include_self,
                 const OpContext& context) {
  if (!include_self) {
    const T identity = identity_of<T>(reduce);
    for_positions<T>(operands, operands.out, [identity](T& to, int64_t) { to = identity; });
  }
  const auto* src = operands.src.data_as<const T>();
  for_positions<T>(operands, operands.out,
                   [reduce, src](T& to, int64_t at) { combine(reduce, to, src[at]); });
  if (reduce == Reduce::kMean) divide_by_counts<T>(operands, include_self, context);
}

// The index of whole rows (int64 [rows]) where `index` is one expanded over the other dimensions,
// of which all are full, and the operands are packed; nothing otherwise.
std::optional<Tensor> row_index(const Tensor& out, int64_t dim, const Tensor& index,
                                const Tensor& src, const OpContext& context) {
  const bool plain = dim == 0 && out.dim() >= 2 && index.dim() == out.dim() &&
                     src.dim() == out.dim() && index.numel() > 0 && out.is_contiguous() &&
                     out.dtype() == src.dtype() && index.size(0) <= src.size(0);
  if (!plain) return std::nullopt;
  require_index("scatter_reduce", "index", index);
  for (size_t i = 1; i < out.sizes().size(); ++i) {
    const bool repeats = index.stride(i) == 0 || index.size(i) == 1;
    if (!repeats || index.size(i) != out.size(i) || index.size(i) != src.size(i)) {
      return std::nullopt;
    }
  }
  const Tensor rows(index.storage(), index.offset(), Dims{index.size(0)}, Dims{index.stride(0)},
                    index.dtype());
  return contiguous_as(rows, Dtype::kInt64, context);
}

}  // namespace

void scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
             const Tensor& src, const OpContext& context) {
  const Operands operands = prepare("scatter", out, dim, index, &src, context);
  copy_self(out, self);
  if (index.numel() == 0) return;
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    const auto* from = operands.src.data_as<const T>();
    for_positions<T>(operands, operands.out, [from](T& to, int64_t at) { to = from[at]; });
  });
}

void scatter_value(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                   double value, const OpContext& context) {
  const Operands operands = prepare("scatter", out, dim, index, nullptr, context);
  copy_self(out, self);
  if (index.numel() == 0) return;
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    const T filler = convert_value<T>(value);
    for_positions<T>(operands, operands.out, [filler](T& to, int64_t) { to = filler; });
  });
}

void scatter_reduce(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& src, std::string_view reduce_name, bool include_self,
                    const OpContext& context) {
  const Reduce reduce = parse_reduce("scatter_reduce", reduce_name);
  const auto rows = row_index(out, dim, index, src, context);
  Operands operands = rows ? Operands{} : prepare("scatter_reduce", out, dim, index, &src, context);
  copy_self(out, self);
  if (index.numel() == 0) return;
  if (rows) {
    operands.out = out;
    const Tensor part(src.storage(), src.offset(), index.sizes(), src.strides(), src.dtype());
    operands.src = contiguous(part, context);
  }
  const auto run = [&] {
    if (rows) {
      scatter_rows(operands.out, *rows, operands.src, reduce, include_self, context);
      return;
    }
    dispatch_dtype(operands.out.dtype(), [&]<typename T>(T) {
      if constexpr (!kIsReduced<T>) reduce_into<T>(operands, reduce, include_self, context);
    });
  };
  if (out.dtype() != Dtype::kFloat16 && out.dtype() != Dtype::kBfloat16) return run();
  const Tensor half = operands.out;
  operands.out = contiguous_as(half, Dtype::kFloat32, context);
  operands.src = contiguous_as(operands.src, Dtype::kFloat32, context);
  run();
  strided_convert(half, operands.out);
}

std::pair<Tensor, Tensor> index_reduce_rows(const Tensor& self, int64_t dim, const Tensor& index,
                                            const Tensor& source, std::string_view reduce) {
  dim = wrap_dim("index_reduce", dim, self.dim());
  const Tensor flat = at_least_1d(index);
  require_rank("index_reduce", "index", flat, 1);
  if (reduce == "sum") {
    throw NotSupported("index_reduce: reduction 'sum'; expected prod, mean, amax or amin");
  }
  const Tensor rows = at_least_1d(source);
  Dims index_strides(rows.sizes().size(), 0);
  const auto at = static_cast<size_t>(dim);
  if (rows.dim() != std::max<int64_t>(self.dim(), 1) || rows.size(at) != flat.size(0)) {
    throw ShapeError(str("index_reduce: source ", describe(source), " for self ", describe(self),
                         " and ", flat.size(0),
                         " indices; expected source of self's rank with size ", flat.size(0),
                         " in dimension ", dim));
  }
  index_strides[at] = flat.stride(0);
  Tensor everywhere(flat.storage(), flat.offset(), rows.sizes(), std::move(index_strides),
                    flat.dtype());
  return {std::move(everywhere), rows};
}

Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self, const OpContext& context) {
  const auto [everywhere, rows] = index_reduce_rows(self, dim, index, source, reduce);
  Tensor result = empty(self.sizes(), self.dtype(), context);
  scatter_reduce(result, self, dim, everywhere, rows, reduce, include_self, context);
  return result;
}

}  // namespace cudaexec::ops
