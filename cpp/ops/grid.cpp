#include "ops/grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

struct Sampler {
  Interpolation interpolation;
  GridPadding padding;
  bool align_corners;
};

// Into [0, size - 1]; NaN goes to the upper end, as torch's comparisons have it.
template <typename C>
C clip(C at, int64_t size) {
  const C low = at < C{0} ? C{0} : at;
  const C limit = static_cast<C>(size - 1);
  return low < limit ? low : limit;
}

// Mirrored at both ends until it lies between them; the ends are given doubled.
template <typename C>
C reflect(C at, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return C{0};
  const C low = static_cast<C>(twice_low) / 2;
  const C span = static_cast<C>(twice_high - twice_low) / 2;
  const C distance = std::abs(at - low);
  const C rest = std::fmod(distance, span);
  const bool even = std::fmod(std::floor(distance / span), C{2}) == C{0};
  return even ? rest + low : span - rest + low;
}

// The source coordinate of a grid value.
template <typename C>
C source_at(C value, int64_t size, const Sampler& sampler) {
  const auto length = static_cast<C>(size);
  C at = sampler.align_corners ? (value + 1) / 2 * (length - 1) : ((value + 1) * length - 1) / 2;
  if (sampler.padding == GridPadding::kBorder) return clip(at, size);
  if (sampler.padding == GridPadding::kReflection) {
    at = sampler.align_corners ? reflect(at, int64_t{0}, 2 * (size - 1))
                               : reflect(at, int64_t{-1}, 2 * size - 1);
    return clip(at, size);
  }
  return at;
}

// Taps of one output along one axis: up to two source positions with weights; -1 is outside.
template <typename C>
struct Taps {
  std::array<int64_t, 2> at{-1, -1};
  std::array<C, 2> weight{};
};

template <typename C>
Taps<C> taps_of(C value, int64_t size, const Sampler& sampler) {
  const C at = source_at(value, size, sampler);
  Taps<C> taps;
  // Positions from -1 to size are near enough to matter; NaN is not.
  if (!(at > C{-2} && at < static_cast<C>(size) + 1)) return taps;
  const auto place = [size](int64_t position) {
    return position >= 0 && position < size ? position : int64_t{-1};
  };
  if (sampler.interpolation == Interpolation::kNearest) {
    taps.at[0] = place(static_cast<int64_t>(std::nearbyint(at)));
    taps.weight[0] = C{1};
    return taps;
  }
  const C floor = std::floor(at);
  const auto first = static_cast<int64_t>(floor);
  taps.at = {place(first), place(first + 1)};
  taps.weight = {floor + 1 - at, at - floor};
  return taps;
}

struct Volume {
  std::array<int64_t, 3> size;  // d, h, w
  int64_t channels;
  int64_t points;  // per batch entry, of the output
};

template <typename T>
void sample_point(const T* input, const T* place, T* out, const Volume& volume,
                  const Sampler& sampler) {
  using C = std::conditional_t<kIsReduced<T>, float, T>;
  std::array<Taps<C>, 3> taps;
  for (size_t axis = 0; axis < 3; ++axis) {
    taps[axis] = taps_of(static_cast<C>(place[2 - axis]), volume.size[axis], sampler);
  }
  std::array<int64_t, 8> offsets;
  std::array<C, 8> weights;
  size_t count = 0;
  for (size_t corner = 0; corner < 8; ++corner) {
    const size_t d = corner >> 2 & 1;
    const size_t h = corner >> 1 & 1;
    const size_t w = corner & 1;
    if (taps[0].at[d] < 0 || taps[1].at[h] < 0 || taps[2].at[w] < 0) continue;
    offsets[count] =
        (taps[0].at[d] * volume.size[1] + taps[1].at[h]) * volume.size[2] + taps[2].at[w];
    weights[count++] = taps[0].weight[d] * taps[1].weight[h] * taps[2].weight[w];
  }
  const int64_t plane = volume.size[0] * volume.size[1] * volume.size[2];
  for (int64_t channel = 0; channel < volume.channels; ++channel) {
    C sum{};
    for (size_t i = 0; i < count; ++i) {
      sum += weights[i] * static_cast<C>(input[channel * plane + offsets[i]]);
    }
    out[channel * volume.points] = static_cast<T>(sum);
  }
}

void check_operands(const Tensor& input, const Tensor& grid) {
  require_floating("grid_sampler_3d", "input", input);
  require_same_dtype("grid_sampler_3d", "input", input, "grid", grid);
  require_rank("grid_sampler_3d", "input", input, 5);
  require_rank("grid_sampler_3d", "grid", grid, 5);
  bool fits = input.size(0) == grid.size(0) && grid.size(4) == 3;
  for (size_t i = 2; i < 5; ++i) fits = fits && input.size(i) > 0;
  if (!fits) {
    throw ShapeError(
        str("grid_sampler_3d: input ", describe(input), " and grid ", describe(grid),
            "; expected equal batches, a volume that is not empty, and 3 coordinates"));
  }
}

}  // namespace

Tensor grid_sampler_3d(const Tensor& input, const Tensor& grid, Interpolation interpolation,
                       GridPadding padding, bool align_corners, const OpContext& context) {
  check_operands(input, grid);
  const Sampler sampler{interpolation, padding, align_corners};
  if (interpolation != Interpolation::kLinear && interpolation != Interpolation::kNearest) {
    throw NotSupported("grid_sampler_3d: interpolation is neither linear (0) nor nearest (1)");
  }
  const Tensor volume_data = contiguous(input, context);
  const Tensor places = contiguous(grid, context);
  Tensor out = empty(Dims{input.size(0), input.size(1), grid.size(1), grid.size(2), grid.size(3)},
                     input.dtype(), context);
  const Volume volume{{input.size(2), input.size(3), input.size(4)},
                      input.size(1),
                      grid.size(1) * grid.size(2) * grid.size(3)};
  const int64_t source = volume.channels * volume.size[0] * volume.size[1] * volume.size[2];
  dispatch_dtype(input.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      const int64_t work = 16 * std::max<int64_t>(volume.channels, 1);
      parallel_for(input.size(0) * volume.points, std::max<int64_t>(1, kGrain / work),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t batch = i / volume.points;
                       const int64_t point = i % volume.points;
                       sample_point(
                           volume_data.data_as<const T>() + batch * source,
                           places.data_as<const T>() + 3 * i,
                           out.data_as<T>() + batch * volume.channels * volume.points + point,
                           volume, sampler);
                     }
                   });
    }
  });
  return out;
}

}  // namespace cudaexec::ops
