// Means over windows.
#include <algorithm>

#include "device/thread_pool.h"
#include "ops/pool_plan.h"
#include "ops/row_math.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

class Divisors {
 public:
  Divisors(const Windows& windows, const Divisor& divisor) : windows_(windows), divisor_(divisor) {}
  [[nodiscard]] int64_t at(size_t d, size_t h, size_t w) const {
    return divisor_.fixed ? *divisor_.fixed : length(0, d) * length(1, h) * length(2, w);
  }

 private:
  [[nodiscard]] int64_t length(size_t axis, size_t at) const {
    const AxisWindows& one = windows_[axis];
    return divisor_.count_include_pad ? one.padded[at] : one.end[at] - one.start[at];
  }
  const Windows& windows_;
  const Divisor& divisor_;
};

// Sums of the rows of the input that windows (d, h) cover, one per column.
template <typename T>
void column_sums(const T* input, const Windows& windows, const std::array<int64_t, 3>& size,
                 size_t d, size_t h, RowSum<T>* sums) {
  std::fill_n(sums, size[2], RowSum<T>{});
  for (int64_t depth = windows[0].start[d]; depth < windows[0].end[d]; ++depth) {
    for (int64_t row = windows[1].start[h]; row < windows[1].end[h]; ++row) {
      add_scaled(sums, input + (depth * size[1] + row) * size[2], RowSum<T>{1}, size[2]);
    }
  }
}

template <typename T>
void average_plane(const T* input, const Windows& windows, const std::array<int64_t, 3>& size,
                   const Divisors& divisors, RowSum<T>* sums, T* out) {
  for (size_t d = 0; d < windows[0].start.size(); ++d) {
    for (size_t h = 0; h < windows[1].start.size(); ++h) {
      column_sums(input, windows, size, d, h, sums);
      for (size_t w = 0; w < windows[2].start.size(); ++w) {
        RowSum<T> sum{};
        for (int64_t c = windows[2].start[w]; c < windows[2].end[w]; ++c) sum += sums[c];
        *out++ = static_cast<T>(sum / static_cast<RowSum<T>>(divisors.at(d, h, w)));
      }
    }
  }
}

template <typename T>
void average_planes(const PoolPlan& plan, const Windows& windows, const Divisors& divisors,
                    const Tensor& result, const OpContext& context) {
  const int64_t places = plan.planes == 0 ? 0 : result.numel() / plan.planes;
  parallel_for(
      plan.planes, std::max<int64_t>(1, kGrain / plan.volume()), [&](int64_t begin, int64_t end) {
        const auto nbytes = plan.size[2] * static_cast<int64_t>(sizeof(RowSum<T>));
        const Tensor sums = empty(Dims{nbytes}, Dtype::kUint8, context);
        for (int64_t plane = begin; plane < end; ++plane) {
          average_plane(plan.input.data_as<const T>() + plane * plan.volume(), windows, plan.size,
                        divisors, sums.data_as<RowSum<T>>(), result.data_as<T>() + plane * places);
        }
      });
}

// [batch, height, width, channels]: a window adds up rows of channels.
template <typename T>
void average_channels_last(const PoolPlan& plan, const Windows& windows, const Divisors& divisors,
                           const Tensor& input, const Tensor& result, const OpContext& context) {
  const int64_t channels = plan.self.size(1);
  const int64_t rows = windows[1].count();
  const T* from = input.data_as<const T>();
  parallel_for(plan.self.size(0) * rows, 1, [&](int64_t begin, int64_t end) {
    const auto nbytes = channels * static_cast<int64_t>(sizeof(RowSum<T>));
    const Tensor scratch = empty(Dims{nbytes}, Dtype::kUint8, context);
    auto* sums = scratch.data_as<RowSum<T>>();
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto h = static_cast<size_t>(unit % rows);
      const T* image = from + unit / rows * plan.volume() * channels;
      T* out = result.data_as<T>() + unit * windows[2].count() * channels;
      for (size_t w = 0; w < windows[2].start.size(); ++w) {
        std::fill_n(sums, channels, RowSum<T>{});
        for_elements(windows, {0, h, w}, plan.size, [&](int64_t position) {
          add_scaled(sums, image + position * channels, RowSum<T>{1}, channels);
        });
        const auto divisor = static_cast<RowSum<T>>(divisors.at(0, h, w));
        for (int64_t c = 0; c < channels; ++c) *out++ = static_cast<T>(sums[c] / divisor);
      }
    }
  });
}

template <typename T>
void average_integers(const PoolPlan& plan, const Windows& windows, const Divisors& divisors,
                      const Tensor& result) {
  const int64_t places = plan.planes == 0 ? 0 : result.numel() / plan.planes;
  for_planes(plan, [&](int64_t plane) {
    const T* input = plan.input.data_as<const T>() + plane * plan.volume();
    T* out = result.data_as<T>() + plane * places;
    for_windows(windows, [&](const std::array<size_t, 3>& window, int64_t at) {
      int64_t sum = 0;
      for_elements(windows, window, plan.size,
                   [&](int64_t position) { sum += static_cast<int64_t>(input[position]); });
      out[at] = static_cast<T>(sum / divisors.at(window[0], window[1], window[2]));
    });
  });
}

}  // namespace

Tensor average(const PoolPlan& plan, const Windows& windows, const Divisor& divisor,
               const OpContext& context) {
  const Divisors divisors(windows, divisor);
  const bool channels_last =
      plan.format == MemoryFormat::kChannelsLast && is_floating_point(plan.self.dtype());
  const Dims strides = strides_in(
      channels_last ? MemoryFormat::kChannelsLast : MemoryFormat::kContiguous, plan.out_sizes);
  Tensor result = empty_strided(plan.out_sizes, strides, plan.self.dtype(), context);
  dispatch_dtype(plan.self.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      if (channels_last) {
        const Tensor& self = plan.self;
        const Tensor view(self.storage(), self.offset(),
                          Dims{self.size(0), self.size(2), self.size(3), self.size(1)},
                          Dims{self.stride(0), self.stride(2), self.stride(3), self.stride(1)},
                          self.dtype());
        average_channels_last<T>(plan, windows, divisors, contiguous(view, context), result,
                                 context);
      } else {
        average_planes<T>(plan, windows, divisors, result, context);
      }
    } else if constexpr (!std::is_same_v<T, bool>) {
      average_integers<T>(plan, windows, divisors, result);
    } else {
      throw DtypeError("avg_pool: self is bool; expected numbers");
    }
  });
  return result;
}

}  // namespace cudaexec::ops
