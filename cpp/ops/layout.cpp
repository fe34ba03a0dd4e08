#include "ops/layout.h"

#include <algorithm>
#include <vector>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {

Tensor permute(const Tensor& self, std::span<const int64_t> dims) {
  const size_t rank = self.sizes().size();
  std::vector<bool> seen(rank, false);
  Dims sizes(rank);
  Dims strides(rank);
  bool fits = dims.size() == rank;
  for (size_t i = 0; fits && i < rank; ++i) {
    const auto from = static_cast<size_t>(wrap_dim("permute", dims[i], self.dim()));
    fits = !seen[from];
    seen[from] = true;
    sizes[i] = self.size(from);
    strides[i] = self.stride(from);
  }
  if (!fits) {
    throw ShapeError(str("permute: dims ", list_str(dims), " for ", describe(self),
                         "; expected each dimension once"));
  }
  return {self.storage(), self.offset(), std::move(sizes), std::move(strides), self.dtype()};
}

Tensor squeeze(const Tensor& self, int64_t dim) {
  const auto at = static_cast<size_t>(wrap_dim("squeeze", dim, self.dim()));
  if (self.dim() == 0 || self.size(at) != 1) return self;
  Dims sizes(self.sizes().size() - 1);
  Dims strides(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = self.size(i < at ? i : i + 1);
    strides[i] = self.stride(i < at ? i : i + 1);
  }
  return {self.storage(), self.offset(), std::move(sizes), std::move(strides), self.dtype()};
}

namespace {

size_t existing_dim(const char* op, const Tensor& self, int64_t dim) {
  if (self.dim() == 0) throw ShapeError(str(op, ": self is a scalar; it has no dimensions"));
  return static_cast<size_t>(wrap_dim(op, dim, self.dim()));
}

Tensor part(const Tensor& self, size_t dim, int64_t start, int64_t length, int64_t step) {
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  sizes[dim] = length;
  strides[dim] *= step;
  return {self.storage(), self.offset() + start * self.stride(dim), std::move(sizes),
          std::move(strides), self.dtype()};
}

}  // namespace

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  const size_t at = existing_dim("narrow", self, dim);
  const int64_t size = self.size(at);
  const int64_t first = start < 0 ? start + size : start;
  if (length < 0 || first < 0 || first > size || length > size - first) {
    throw ShapeError(str("narrow: start ", start, " and length ", length, " leave dimension ", dim,
                         " of ", describe(self)));
  }
  return part(self, at, first, length, 1);
}

Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> end, int64_t step) {
  const size_t at = existing_dim("slice", self, dim);
  if (step < 1) throw InputError(str("slice: step is ", step, "; expected 1 or more"));
  const int64_t size = self.size(at);
  const auto place = [size](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const int64_t first = place(start.value_or(0));
  const int64_t last = std::max(first, place(end.value_or(size)));
  return part(self, at, first, (last - first + step - 1) / step, step);
}

Tensor view_dtype(const Tensor& self, Dtype dtype) {
  const auto from = static_cast<int64_t>(self.itemsize());
  const auto to = static_cast<int64_t>(dtype_size(dtype));
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  int64_t offset = self.offset();
  const auto refuse = [&](const char* reason) {
    throw ShapeError(str("view: ", describe(self), " as ", dtype_name(dtype), ": ", reason));
  };
  if (from != to) {
    if (self.dim() == 0) refuse("a scalar needs a dtype of the same size");
    const size_t last = sizes.size() - 1;
    if (strides[last] != 1) refuse("the last dimension has to have stride 1");
    if (from < to && (sizes[last] * from % to != 0 || offset * from % to != 0)) {
      refuse("the last dimension or the offset does not divide");
    }
    sizes[last] = sizes[last] * from / to;
    offset = offset * from / to;
    for (size_t i = 0; i < last; ++i) {
      if (strides[i] * from % to != 0) refuse("a stride does not divide");
      strides[i] = strides[i] * from / to;
    }
  }
  return {self.storage(), offset, std::move(sizes), std::move(strides), dtype};
}

namespace {

Dims resolved_sizes(const Tensor& self, std::span<const int64_t> sizes) {
  Dims result(sizes);
  int64_t known = 1;
  int64_t open = -1;
  bool valid = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && open < 0) {
      open = static_cast<int64_t>(i);
    } else {
      valid = valid && sizes[i] >= 0;
      known *= sizes[i];
    }
  }
  const int64_t numel = self.numel();
  if (valid && open >= 0 && known > 0 && numel % known == 0) {
    result[static_cast<size_t>(open)] = numel / known;
    known = numel;
  }
  if (!valid || known != numel) {
    throw ShapeError(str("reshape: ", describe(self), " to ", list_str(sizes),
                         ": the numbers of elements differ"));
  }
  return result;
}

// Strides that view `self` with `sizes` (of the same number of elements), if there are any: runs of
// old dimensions that lie like one are cut into new ones.
std::optional<Dims> view_strides(const Tensor& self, const Dims& sizes) {
  if (self.numel() == 0) return contiguous_strides(sizes);
  Dims strides(sizes.size(), 1);
  size_t next = sizes.size();
  int64_t run = 1;   // elements of the current run of old dimensions
  int64_t step = 1;  // stride of its innermost dimension
  bool open = false;
  for (size_t i = self.sizes().size(); i-- > 0;) {
    if (!open) step = self.stride(i);
    open = true;
    run *= self.size(i);
    const bool ends = i == 0 || (self.size(i - 1) != 1 && self.stride(i - 1) != run * step);
    if (!ends) continue;
    int64_t taken = 1;
    while (next > 0 && (taken < run || sizes[next - 1] == 1)) {
      --next;
      strides[next] = taken * step;
      taken *= sizes[next];
    }
    if (taken != run) return std::nullopt;
    run = 1;
    open = false;
  }
  return strides;
}

}  // namespace

Tensor reshape(const Tensor& self, std::span<const int64_t> sizes, const OpContext& context) {
  const Dims wanted = resolved_sizes(self, sizes);
  if (const auto strides = view_strides(self, wanted)) {
    return {self.storage(), self.offset(), wanted, *strides, self.dtype()};
  }
  const Tensor copy = contiguous_copy(self, context.allocator, context.stream);
  return {copy.storage(), copy.offset(), wanted, contiguous_strides(wanted), self.dtype()};
}

Tensor cat(std::span<const Tensor* const> tensors, int64_t dim, const OpContext& context) {
  if (tensors.empty()) throw InputError("cat: no tensors");
  std::vector<const Tensor*> used;
  Dtype dtype = tensors[0]->dtype();
  for (const Tensor* tensor : tensors) {
    dtype = promote(dtype, tensor->dtype());
    const bool skipped = tensor->dim() == 1 && tensor->size(0) == 0;
    if (!skipped) used.push_back(tensor);
  }
  if (used.empty()) return empty(Dims{0}, dtype, context);
  const Tensor& first = *used[0];
  const size_t at = existing_dim("cat", first, dim);
  Dims sizes = first.sizes();
  sizes[at] = 0;
  MemoryFormat format = memory_format(first);
  for (const Tensor* tensor : used) {
    bool fits = tensor->dim() == first.dim();
    for (size_t i = 0; fits && i < sizes.size(); ++i) {
      fits = i == at || tensor->size(i) == first.size(i);
    }
    if (!fits) {
      throw ShapeError(str("cat: ", describe(*tensor), " and ", describe(first),
                           "; expected equal sizes but for dimension ", at));
    }
    sizes[at] += tensor->size(at);
    if (memory_format(*tensor) != format) format = MemoryFormat::kContiguous;
  }
  Tensor result = empty_strided(sizes, strides_in(format, sizes), dtype, context);
  int64_t start = 0;
  for (const Tensor* tensor : used) {
    strided_convert(part(result, at, start, tensor->size(at), 1), *tensor);
    start += tensor->size(at);
  }
  return result;
}

namespace {

enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

PadMode parse_mode(std::string_view name) {
  if (name == "constant") return PadMode::kConstant;
  if (name == "reflect") return PadMode::kReflect;
  if (name == "replicate") return PadMode::kReplicate;
  if (name == "circular") return PadMode::kCircular;
  throw NotSupported(
      str("pad: mode '", name, "'; expected constant, reflect, replicate or circular"));
}

// Source positions of one dimension; -1 is padding.
std::vector<int64_t> pad_positions(int64_t size, int64_t before, int64_t after, PadMode mode) {
  const int64_t count = size + before + after;
  const int64_t limit = mode == PadMode::kReflect ? size - 1 : size;
  const bool bounded = mode == PadMode::kReflect || mode == PadMode::kCircular;
  const bool wrong = bounded && (before > limit || after > limit);
  if (count < 0 || wrong || (mode == PadMode::kReplicate && size == 0)) {
    throw ShapeError(str("pad: ", before, " and ", after, " around size ", size,
                         " is not possible in this mode"));
  }
  std::vector<int64_t> positions(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = i - before;
    switch (mode) {
      case PadMode::kConstant:
        if (from < 0 || from >= size) from = -1;
        break;
      case PadMode::kReflect:
        if (from < 0) from = -from;
        if (from >= size) from = 2 * (size - 1) - from;
        break;
      case PadMode::kReplicate:
        from = std::clamp<int64_t>(from, 0, size - 1);
        break;
      case PadMode::kCircular:
        from = (from + size) % size;
        break;
    }
    positions[static_cast<size_t>(i)] = from;
  }
  return positions;
}

// Padding by nothing or less: torch then keeps the strides of what is left.
Tensor cut(const Tensor& self, std::span<const int64_t> amounts, const OpContext& context) {
  Tensor rest = self;
  for (size_t pair = 0; pair < amounts.size(); pair += 2) {
    const size_t dim = self.sizes().size() - 1 - pair / 2;
    const int64_t length = self.size(dim) + amounts[pair] + amounts[pair + 1];
    if (length < 0) {
      throw ShapeError(str("pad: ", amounts[pair], " and ", amounts[pair + 1], " around size ",
                           self.size(dim), " is not possible"));
    }
    rest = part(rest, dim, -amounts[pair], length, 1);
  }
  return clone(rest, context);
}

template <typename T>
void pad_into(const Tensor& input, const std::vector<std::vector<int64_t>>& positions, T filler,
              const Tensor& result) {
  const size_t rank = input.sizes().size();
  const T* from = input.data_as<const T>();
  T* to = result.data_as<T>();
  const int64_t width = result.size(rank - 1);
  const int64_t lines = width == 0 ? 0 : result.numel() / width;
  const auto& columns = positions[rank - 1];
  parallel_for(lines, std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t line = begin; line < end; ++line) {
                   int64_t rest = line;
                   int64_t source = 0;
                   bool inside = true;
                   for (size_t dim = rank - 1; dim-- > 0;) {
                     const int64_t at =
                         positions[dim][static_cast<size_t>(rest % result.size(dim))];
                     rest /= result.size(dim);
                     inside = inside && at >= 0;
                     source += at * input.stride(dim);
                   }
                   T* row = to + line * width;
                   for (int64_t i = 0; i < width; ++i) {
                     const int64_t at = columns[static_cast<size_t>(i)];
                     row[i] = inside && at >= 0 ? from[source + at] : filler;
                   }
                 }
               });
}

}  // namespace

Tensor pad(const Tensor& self, std::span<const int64_t> amounts, std::string_view mode_name,
           double value, const OpContext& context) {
  const PadMode mode = parse_mode(mode_name);
  const size_t rank = self.sizes().size();
  if (amounts.size() % 2 != 0 || amounts.size() > 2 * rank) {
    throw InputError(str("pad: ", amounts.size(), " amounts for ", describe(self),
                         "; expected two per padded dimension"));
  }
  if (rank == 0) return contiguous_copy(self, context.allocator, context.stream);
  const bool only_cuts =
      std::all_of(amounts.begin(), amounts.end(), [](int64_t n) { return n <= 0; });
  if (mode == PadMode::kConstant && only_cuts) return cut(self, amounts, context);
  const Tensor input = contiguous(self, context);
  std::vector<std::vector<int64_t>> positions(rank);
  Dims sizes(rank);
  for (size_t dim = 0; dim < rank; ++dim) {
    const size_t pair = 2 * (rank - 1 - dim);
    const bool padded = pair + 1 < amounts.size();
    positions[dim] =
        pad_positions(self.size(dim), padded ? amounts[pair] : 0, padded ? amounts[pair + 1] : 0,
                      padded ? mode : PadMode::kConstant);
    sizes[dim] = static_cast<int64_t>(positions[dim].size());
  }
  Tensor result = empty(sizes, self.dtype(), context);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    pad_into<T>(input, positions, convert_value<T>(value), result);
  });
  const MemoryFormat format = memory_format(self);
  if (format == MemoryFormat::kContiguous || mode == PadMode::kCircular) return result;
  Tensor formatted = empty_strided(sizes, strides_in(format, sizes), self.dtype(), context);
  strided_copy(formatted, result);
  return formatted;
}

void fill(const Tensor& self, double value) {
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    const T filler = convert_value<T>(value);
    if (self.is_contiguous()) {
      T* to = self.data_as<T>();
      parallel_for(self.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, filler); });
      return;
    }
    T one = filler;
    const StoragePtr storage = Storage::borrow(&one, sizeof(T), Device{}, nullptr);
    const Dims none(self.sizes().size(), 0);
    strided_copy(self, Tensor(storage, 0, self.sizes(), none, self.dtype()));
  });
}

}  // namespace cudaexec::ops
