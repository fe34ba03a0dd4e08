#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/operand.h"
#include "ops/search.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

struct Range {
  double low;
  double high;
};

void check_bins(const char* op, const Tensor& self, int64_t bins) {
  require_floating(op, "self", self);
  if (bins < 1) throw InputError(str(op, ": bins is ", bins, "; expected 1 or more"));
}

template <typename T>
Range data_range(const char* op, const T* data, int64_t count) {
  if (count == 0) return {0, 0};
  auto low = static_cast<double>(data[0]);
  double high = low;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(data[i]);
    if (!std::isfinite(value)) {
      throw InputError(
          str(op, ": element ", i, " is ", value, ", so the data has no finite range; give one"));
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return {low, high};
}

Range checked_range(const char* op, Range range) {
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low > range.high) {
    throw InputError(str(op, ": the range is ", range.low, " to ", range.high,
                         "; expected finite values in order"));
  }
  if (range.low == range.high) return {range.low - 1, range.high + 1};
  return range;
}

// Edges as torch.linspace computes them: from both ends to the middle.
template <typename T>
void fill_edges(Range range, int64_t bins, T* edges) {
  using C = std::conditional_t<kIsReduced<T>, float, T>;
  const C low = static_cast<C>(range.low);
  const C high = static_cast<C>(range.high);
  const C step = (high - low) / static_cast<C>(bins);
  const int64_t count = bins + 1;
  for (int64_t i = 0; i < count; ++i) {
    edges[i] = static_cast<T>(i < count / 2 ? low + step * static_cast<C>(i)
                                            : high - step * static_cast<C>(bins - i));
  }
}

// The bin of `value`, or -1 outside the edges (and for NaN). `exact` looks at the neighbours'
// edges.
template <typename T>
int64_t bin_of(T element, const T* edges, int64_t bins, bool exact) {
  using C = std::conditional_t<kIsReduced<T>, float, T>;
  const C value = static_cast<C>(element);
  const C low = static_cast<C>(edges[0]);
  const C high = static_cast<C>(edges[bins]);
  if (!(value >= low && value <= high)) return -1;
  auto bin = static_cast<int64_t>((value - low) * static_cast<C>(bins) / (high - low));
  if (exact) {
    const int64_t first = std::max<int64_t>(0, bin - 1);
    const int64_t last = std::min(bin + 2, bins + 1);
    bin = std::upper_bound(edges + first, edges + last, element) - edges - 1;
  }
  return std::min(bin, bins - 1);
}

}  // namespace

Tensor histc(const Tensor& self, int64_t bins, double low, double high, const OpContext& context) {
  check_bins("histc", self, bins);
  const Tensor packed = contiguous(self, context);
  const Tensor edges = empty(Dims{bins + 1}, self.dtype(), context);
  const Tensor counts = empty(Dims{bins}, Dtype::kInt64, context);
  auto* count = counts.data_as<int64_t>();
  std::fill_n(count, bins, 0);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      const auto* data = packed.data_as<const T>();
      Range range{low, high};
      if (low == high) range = data_range("histc", data, packed.numel());
      auto* edge = edges.data_as<T>();
      fill_edges(checked_range("histc", range), bins, edge);
      for (int64_t i = 0; i < packed.numel(); ++i) {
        const int64_t bin = bin_of(data[i], edge, bins, false);
        if (bin >= 0) ++count[bin];
      }
    }
  });
  return contiguous_as(counts, self.dtype(), context);
}

std::pair<Tensor, Tensor> histogram(const Tensor& self, int64_t bins,
                                    const HistogramOptions& options, const OpContext& context) {
  check_bins("histogram", self, bins);
  require_dtype("histogram", "self", self, {Dtype::kFloat32, Dtype::kFloat64});
  const Tensor packed = contiguous(self, context);
  Tensor weight;
  if (options.weight != nullptr) {
    require_same_dtype("histogram", "self", self, "weight", *options.weight);
    if (!(options.weight->sizes() == self.sizes())) {
      throw ShapeError(str("histogram: weight ", describe(*options.weight), " for self ",
                           describe(self), "; expected equal sizes"));
    }
    weight = contiguous(*options.weight, context);
  }
  Tensor edges = empty(Dims{bins + 1}, self.dtype(), context);
  Tensor counts = empty(Dims{bins}, self.dtype(), context);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      const auto* data = packed.data_as<const T>();
      const Range range = options.range != nullptr ? Range{options.range[0], options.range[1]}
                                                   : data_range("histogram", data, packed.numel());
      auto* edge = edges.data_as<T>();
      auto* count = counts.data_as<T>();
      fill_edges(checked_range("histogram", range), bins, edge);
      std::fill_n(count, bins, T{});
      for (int64_t i = 0; i < packed.numel(); ++i) {
        const int64_t bin = bin_of(data[i], edge, bins, true);
        if (bin >= 0) count[bin] += weight.defined() ? weight.data_as<const T>()[i] : T{1};
      }
      if (!options.density) return;
      T total{};
      for (int64_t i = 0; i < bins; ++i) total += count[i];
      for (int64_t i = 0; i < bins; ++i) count[i] /= total * (edge[i + 1] - edge[i]);
    }
  });
  return {std::move(counts), std::move(edges)};
}

}  // namespace cudaexec::ops
