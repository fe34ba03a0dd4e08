// segment_reduce
#include <algorithm>
#include <limits>

#include "device/thread_pool.h"
#include "ops/misc.h"
#include "ops/operand.h"
#include "ops/sort_keys.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

enum class SegmentReduce { kSum, kMean, kMax, kMin, kProd };

SegmentReduce parse(std::string_view name) {
  if (name == "sum") return SegmentReduce::kSum;
  if (name == "mean") return SegmentReduce::kMean;
  if (name == "max") return SegmentReduce::kMax;
  if (name == "min") return SegmentReduce::kMin;
  if (name == "prod") return SegmentReduce::kProd;
  throw NotSupported(
      str("segment_reduce: reduction '", name, "'; expected sum, mean, max, min or prod"));
}

template <typename C>
C start_value(SegmentReduce reduce, std::optional<double> initial) {
  if (initial) return static_cast<C>(*initial);
  switch (reduce) {
    case SegmentReduce::kMax:
      return -std::numeric_limits<C>::infinity();
    case SegmentReduce::kMin:
      return std::numeric_limits<C>::infinity();
    case SegmentReduce::kProd:
      return C{1};
    default:
      return C{0};
  }
}

template <typename C>
C combine(SegmentReduce reduce, C state, C value) {
  switch (reduce) {
    case SegmentReduce::kMax:
      return is_nan(value) || state < value ? value : state;
    case SegmentReduce::kMin:
      return is_nan(value) || value < state ? value : state;
    case SegmentReduce::kProd:
      return state * value;
    default:
      return state + value;
  }
}

// Starts of segments, one row of `segments` + 1 per index of the dimensions before the axis.
Tensor segment_starts(const SegmentOptions& options, int64_t size, const OpContext& context) {
  if ((options.lengths == nullptr) == (options.offsets == nullptr)) {
    throw InputError("segment_reduce: expected either lengths or offsets");
  }
  const bool by_length = options.lengths != nullptr;
  const Tensor& given = by_length ? *options.lengths : *options.offsets;
  require_index("segment_reduce", by_length ? "lengths" : "offsets", given);
  if (given.dim() != options.axis + 1) {
    throw ShapeError(str("segment_reduce: lengths or offsets ", describe(given), " for axis ",
                         options.axis, "; expected ", options.axis + 1, " dimensions"));
  }
  const Tensor values = contiguous_as(given, Dtype::kInt64, context);
  const int64_t columns = given.size(given.sizes().size() - 1);
  const int64_t rows = columns == 0 ? 0 : values.numel() / columns;
  const int64_t segments = by_length ? columns : columns - 1;
  Tensor starts = empty(Dims{rows, std::max<int64_t>(segments, 0) + 1}, Dtype::kInt64, context);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* from = values.data_as<const int64_t>() + row * columns;
    int64_t* to = starts.data_as<int64_t>() + row * (segments + 1);
    to[0] = by_length ? 0 : from[0];
    for (int64_t i = 0; i < segments; ++i) {
      to[i + 1] = by_length ? to[i] + from[i] : from[i + 1];
      if (to[i] < 0 || to[i + 1] < to[i] || to[i + 1] > size) {
        throw InputError(str("segment_reduce: segment ", i, " covers ", to[i], " to ", to[i + 1],
                             " of an axis of size ", size));
      }
    }
  }
  return starts;
}

template <typename T>
void reduce_segment(const T* data, int64_t count, int64_t inner, SegmentReduce reduce,
                    std::optional<double> initial, T* out) {
  using C = std::conditional_t<kIsReduced<T>, float, T>;
  for (int64_t c = 0; c < inner; ++c) {
    C state = start_value<C>(reduce, initial);
    for (int64_t i = 0; i < count; ++i) {
      state = combine(reduce, state, static_cast<C>(data[i * inner + c]));
    }
    if (reduce == SegmentReduce::kMean) {
      if (count > 0) {
        state /= static_cast<C>(count);
      } else if (!initial) {
        state = std::numeric_limits<C>::quiet_NaN();
      }
    }
    out[c] = static_cast<T>(state);
  }
}

}  // namespace

Tensor segment_reduce(const Tensor& data, const SegmentOptions& options, const OpContext& context) {
  require_floating("segment_reduce", "data", data);
  const SegmentReduce reduce = parse(options.reduce);
  if (options.axis < 0 || options.axis >= data.dim()) {
    throw ShapeError(str("segment_reduce: axis ", options.axis, " of data ", describe(data)));
  }
  const Split split = split_at(data.sizes(), options.axis);
  const Tensor starts = segment_starts(options, split.count, context);
  const int64_t segments = starts.size(1) - 1;
  if (starts.size(0) != split.outer) {
    throw ShapeError(str("segment_reduce: data ", describe(data), " has ", split.outer,
                         " rows before the axis, lengths or offsets have ", starts.size(0)));
  }
  const Tensor packed = contiguous(data, context);
  Dims sizes = data.sizes();
  sizes[static_cast<size_t>(options.axis)] = segments;
  Tensor result = empty(sizes, data.dtype(), context);
  dispatch_dtype(data.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      const auto* start = starts.data_as<const int64_t>();
      parallel_for(split.outer * segments,
                   std::max<int64_t>(1, kGrain / std::max<int64_t>(split.inner, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t row = i / segments;
                       const int64_t* bounds = start + row * (segments + 1) + i % segments;
                       const T* from = packed.data_as<const T>() +
                                       (row * split.count + bounds[0]) * split.inner;
                       reduce_segment(from, bounds[1] - bounds[0], split.inner, reduce,
                                      options.initial, result.data_as<T>() + i * split.inner);
                     }
                   });
    }
  });
  return result;
}

}  // namespace cudaexec::ops
