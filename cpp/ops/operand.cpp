#include "ops/operand.h"

#include <algorithm>
#include <numeric>

#include "tensor/strided_copy.h"

namespace cudaexec::ops {

int64_t wrap_dim(const char* op, int64_t dim, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);
  if (dim < -limit || dim >= limit) {
    throw ShapeError(str(op, ": dimension ", dim, " does not exist; expected ", -limit, " to ",
                         limit - 1, " for a tensor of rank ", rank));
  }
  return dim < 0 ? dim + limit : dim;
}

void require_dtype(const char* op, const char* operand, const Tensor& tensor,
                   std::initializer_list<Dtype> allowed) {
  if (std::find(allowed.begin(), allowed.end(), tensor.dtype()) != allowed.end()) return;
  std::string expected;
  for (const Dtype dtype : allowed) {
    if (!expected.empty()) expected += ", ";
    expected += dtype_name(dtype);
  }
  throw DtypeError(
      str(op, ": ", operand, " is ", describe(tensor), "; expected one of ", expected));
}

void require_floating(const char* op, const char* operand, const Tensor& tensor) {
  require_dtype(op, operand, tensor,
                {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64});
}

void require_index(const char* op, const char* operand, const Tensor& tensor) {
  require_dtype(op, operand, tensor, {Dtype::kInt32, Dtype::kInt64});
}

void require_same_dtype(const char* op, const char* a_name, const Tensor& a, const char* b_name,
                        const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw DtypeError(str(op, ": ", a_name, " is ", describe(a), " and ", b_name, " is ", describe(b),
                       "; expected one dtype"));
}

void require_rank(const char* op, const char* operand, const Tensor& tensor, int64_t rank) {
  if (tensor.dim() == rank) return;
  throw ShapeError(
      str(op, ": ", operand, " is ", describe(tensor), "; expected ", rank, " dimensions"));
}

Dtype promote(Dtype a, Dtype b) noexcept {
  if (a == b) return a;
  if (is_floating_point(a) || is_floating_point(b)) {
    if (!is_floating_point(a)) return b;
    if (!is_floating_point(b)) return a;
    if (a == Dtype::kFloat64 || b == Dtype::kFloat64) return Dtype::kFloat64;
    return Dtype::kFloat32;  // float32 with a half type, or the two half types
  }
  if (a == Dtype::kBool) return b;
  if (b == Dtype::kBool) return a;
  if (a == Dtype::kUint8 || b == Dtype::kUint8) {
    const Dtype other = a == Dtype::kUint8 ? b : a;
    return other == Dtype::kInt8 ? Dtype::kInt16 : other;
  }
  return dtype_size(a) > dtype_size(b) ? a : b;
}

Tensor empty(std::span<const int64_t> sizes, Dtype dtype, const OpContext& context) {
  return Tensor::empty(sizes, dtype, Device{}, context.allocator, context.stream);
}

Tensor empty_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides, Dtype dtype,
                     const OpContext& context) {
  return Tensor::empty_strided(sizes, strides, dtype, Device{}, context.allocator, context.stream);
}

Tensor contiguous(const Tensor& tensor, const OpContext& context) {
  return contiguous_as(tensor, tensor.dtype(), context);
}

Tensor contiguous_as(const Tensor& tensor, Dtype dtype, const OpContext& context) {
  if (tensor.dtype() == dtype && tensor.is_contiguous()) return tensor;
  Tensor copy = empty(tensor.sizes(), dtype, context);
  strided_convert(copy, tensor);
  return copy;
}

Dims broadcast_sizes(const char* op, std::span<const Dims> operands) {
  size_t rank = 0;
  for (const Dims& sizes : operands) rank = std::max(rank, sizes.size());
  Dims result(rank, 1);
  for (const Dims& sizes : operands) {
    const size_t shift = rank - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = result[shift + i];
      if (size == 1) {
        size = sizes[i];
      } else if (sizes[i] != 1 && sizes[i] != size) {
        throw ShapeError(str(op, ": sizes ", list_str(operands[0]), " and ", list_str(sizes),
                             " do not broadcast: dimension ", shift + i, " is ", size, " and ",
                             sizes[i], "; expected equal sizes or 1"));
      }
    }
  }
  return result;
}

Tensor expand(const char* op, const Tensor& tensor, std::span<const int64_t> sizes) {
  const size_t rank = tensor.sizes().size();
  Dims strides(sizes.size());
  bool fits = rank <= sizes.size();
  const size_t shift = fits ? sizes.size() - rank : 0;
  for (size_t i = 0; fits && i < rank; ++i) {
    if (tensor.size(i) == sizes[shift + i]) {
      strides[shift + i] = tensor.stride(i);
    } else {
      fits = tensor.size(i) == 1;
    }
  }
  if (!fits) {
    throw ShapeError(str(op, ": ", describe(tensor), " does not broadcast to ", list_str(sizes)));
  }
  return {tensor.storage(), tensor.offset(), Dims(sizes), std::move(strides), tensor.dtype()};
}

bool is_dense(const Tensor& tensor) {
  if (tensor.is_contiguous()) return true;
  std::vector<size_t> order;
  for (size_t i = 0; i < tensor.sizes().size(); ++i) {
    if (tensor.size(i) != 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensor.stride(a) < tensor.stride(b); });
  int64_t expected = 1;
  for (const size_t dim : order) {
    if (tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return true;
}

namespace {

// > 0 if dimension `a` should lie outside of `b`, < 0 if inside, 0 if the operands do not say.
int compare_dims(size_t a, size_t b, std::span<const int64_t> sizes,
                 std::span<const Dims> operands) {
  for (const Dims& strides : operands) {
    if (strides[a] == 0 || strides[b] == 0) continue;
    if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

}  // namespace

Dims ordered_strides(std::span<const int64_t> sizes, std::span<const Dims> operands) {
  const size_t rank = sizes.size();
  std::vector<size_t> order(rank);  // innermost first
  std::iota(order.rbegin(), order.rend(), size_t{0});
  // Comparisons may be undecided, so the result depends on the algorithm: insertion that stops at
  // the first dimension known to belong further in, and passes undecided ones.
  for (size_t i = 1; i < rank; ++i) {
    size_t moving = i;
    for (size_t at = i; at-- > 0;) {
      const int comparison = compare_dims(order[at], order[moving], sizes, operands);
      if (comparison < 0) break;
      if (comparison > 0) {
        std::swap(order[at], order[moving]);
        moving = at;
      }
    }
  }
  Dims strides(rank);
  int64_t step = 1;
  for (const size_t dim : order) {
    strides[dim] = step;
    step *= std::max<int64_t>(sizes[dim], 1);
  }
  return strides;
}

Dims strides_like(const Tensor& tensor) {
  if (is_dense(tensor)) return tensor.strides();
  return ordered_strides(tensor.sizes(), {&tensor.strides(), 1});
}

Tensor clone(const Tensor& self, const OpContext& context) {
  Tensor copy = empty_strided(self.sizes(), strides_like(self), self.dtype(), context);
  strided_copy(copy, self);
  return copy;
}

namespace {

// Whether strides ascend in the order channels, innermost to outermost space, batch.
bool looks_channels_last(const Tensor& tensor) {
  const size_t rank = tensor.sizes().size();
  if (tensor.stride(1) == 0) return false;
  int64_t least = 0;
  const auto accept = [&](size_t dim) {
    const int64_t size = tensor.size(dim);
    const int64_t stride = tensor.stride(dim);
    if (size == 0 || stride < least) return false;
    // With all inner sizes 1 both formats fit: torch takes it as contiguous.
    if (dim == 0 && least == tensor.stride(1)) return false;
    least = stride * std::max<int64_t>(size, 1);
    return true;
  };
  if (!accept(1)) return false;
  for (size_t dim = rank - 1; dim >= 2; --dim) {
    if (!accept(dim)) return false;
  }
  return accept(0);
}

}  // namespace

MemoryFormat memory_format(const Tensor& tensor) {
  if (tensor.dim() == 4 && looks_channels_last(tensor)) return MemoryFormat::kChannelsLast;
  if (tensor.dim() == 5 && looks_channels_last(tensor)) return MemoryFormat::kChannelsLast3d;
  return MemoryFormat::kContiguous;
}

Dims strides_in(MemoryFormat format, std::span<const int64_t> sizes) {
  const size_t rank = format == MemoryFormat::kChannelsLast ? 4 : 5;
  if (format == MemoryFormat::kContiguous || sizes.size() != rank) return contiguous_strides(sizes);
  Dims strides(rank);
  int64_t step = 1;
  const auto place = [&](size_t dim) {
    strides[dim] = step;
    step *= std::max<int64_t>(sizes[dim], 1);
  };
  place(1);
  for (size_t dim = rank - 1; dim >= 2; --dim) place(dim);
  place(0);
  return strides;
}

Split split_at(std::span<const int64_t> sizes, int64_t dim) {
  Split split;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    (at < dim ? split.outer : at == dim ? split.count : split.inner) *= sizes[i];
  }
  return split;
}

std::vector<PairAxis> pair_axes(std::span<const int64_t> sizes, std::span<const int64_t> a_strides,
                                int64_t a_itemsize, std::span<const int64_t> b_strides,
                                int64_t b_itemsize, size_t first, size_t last) {
  std::vector<PairAxis> axes;
  for (size_t i = first; i < last; ++i) {
    if (sizes[i] == 1) continue;
    const PairAxis next{sizes[i], a_strides[i] * a_itemsize, b_strides[i] * b_itemsize};
    if (!axes.empty() && axes.back().a == next.a * next.size &&
        axes.back().b == next.b * next.size) {
      axes.back() = {axes.back().size * next.size, next.a, next.b};
    } else {
      axes.push_back(next);
    }
  }
  return axes;
}

}  // namespace cudaexec::ops
