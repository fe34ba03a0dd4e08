#include "ops/search.h"

#include <limits>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

// As written, comparisons with NaN are false, so NaN goes to the end.
template <typename T>
int64_t find_position(const T* sequence, const int64_t* sorter, int64_t size, T value, bool right) {
  int64_t first = 0;
  int64_t last = size;
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    const T at = sequence[sorter != nullptr ? sorter[middle] : middle];
    const bool beyond = right ? at > value : at >= value;
    if (beyond) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

void check_sequence(const Tensor& sequence, const Tensor& values) {
  bool fits = sequence.dim() >= 1;
  if (fits && sequence.dim() != 1) {
    fits = sequence.dim() == values.dim();
    for (size_t i = 0; fits && i + 1 < sequence.sizes().size(); ++i) {
      fits = sequence.size(i) == values.size(i);
    }
  }
  if (!fits) {
    throw ShapeError(str("searchsorted: sequence ", describe(sequence), " for values ",
                         describe(values),
                         "; expected 1 dimension, or the sizes of values but for the last"));
  }
}

Tensor checked_sorter(const Tensor& sorter, const Tensor& sequence, const OpContext& context) {
  require_dtype("searchsorted", "sorter", sorter, {Dtype::kInt64});
  if (!(sorter.sizes() == sequence.sizes())) {
    throw ShapeError(str("searchsorted: sorter ", describe(sorter), " for sequence ",
                         describe(sequence), "; expected equal sizes"));
  }
  Tensor packed = contiguous(sorter, context);
  const auto* order = packed.data_as<const int64_t>();
  const int64_t size = sequence.size(sequence.sizes().size() - 1);
  for (int64_t i = 0; i < packed.numel(); ++i) {
    if (order[i] < 0 || order[i] >= size) {
      throw InputError(
          str("searchsorted: sorter has index ", order[i], "; expected 0 to ", size - 1));
    }
  }
  return packed;
}

template <typename T, typename Out>
void search_all(const Tensor& sequence, const Tensor& values, const int64_t* sorter, bool right,
                const Tensor& result) {
  const int64_t size = sequence.size(sequence.sizes().size() - 1);
  // Values per row of the sequence.
  const int64_t row = sequence.dim() == 1 || values.dim() == 0
                          ? std::max<int64_t>(values.numel(), 1)
                          : values.size(values.sizes().size() - 1);
  const auto* edges = sequence.data_as<const T>();
  const auto* value = values.data_as<const T>();
  auto* out = result.data_as<Out>();
  parallel_for(values.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t base = sequence.dim() == 1 ? 0 : i / row * size;
      const int64_t* order = sorter != nullptr ? sorter + base : nullptr;
      out[i] = static_cast<Out>(find_position(edges + base, order, size, value[i], right));
    }
  });
}

}  // namespace

bool search_right(bool right, const char* side) {
  if (side == nullptr) return right;
  const std::string_view name = side;
  if (name != "left" && name != "right") {
    throw InputError(str("searchsorted: side is '", name, "'; expected left or right"));
  }
  if (right && name == "left") {
    throw InputError("searchsorted: right=True contradicts side='left'");
  }
  return name == "right";
}

Tensor searchsorted(const Tensor& sequence, const Tensor& values, const SearchOptions& options,
                    const OpContext& context) {
  check_sequence(sequence, values);
  const int64_t size = sequence.size(sequence.sizes().size() - 1);
  if (options.out_int32 && size > std::numeric_limits<int32_t>::max()) {
    throw NotSupported(str("searchsorted: ", size, " positions do not fit the int32 result"));
  }
  const Dtype dtype = promote(sequence.dtype(), values.dtype());
  const Tensor edges = contiguous_as(sequence, dtype, context);
  const Tensor packed = contiguous_as(values, dtype, context);
  const Tensor sorter =
      options.sorter != nullptr ? checked_sorter(*options.sorter, sequence, context) : Tensor();
  const int64_t* order = sorter.defined() ? sorter.data_as<const int64_t>() : nullptr;
  Tensor result = empty(values.sizes(), options.out_int32 ? Dtype::kInt32 : Dtype::kInt64, context);
  dispatch_dtype(dtype, [&]<typename T>(T) {
    if (options.out_int32) {
      search_all<T, int32_t>(edges, packed, order, options.right, result);
    } else {
      search_all<T, int64_t>(edges, packed, order, options.right, result);
    }
  });
  return result;
}

Tensor searchsorted_value(const Tensor& sequence, double value, const SearchOptions& options,
                          const OpContext& context) {
  require_rank("searchsorted", "the sequence for a single value", sequence, 1);
  // A Python number takes the sequence's dtype, or float32 beside integers.
  const Dtype dtype = is_floating_point(sequence.dtype()) ? sequence.dtype() : Dtype::kFloat32;
  const Tensor values = empty(Dims{}, dtype, context);
  dispatch_dtype(dtype, [&]<typename T>(T) { *values.data_as<T>() = convert_value<T>(value); });
  return searchsorted(sequence, values, options, context);
}

}  // namespace cudaexec::ops
