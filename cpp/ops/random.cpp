#include "ops/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {
namespace {

// Two 64-bit numbers of one block.
struct Pair {
  uint64_t a;
  uint64_t b;
};

Pair pair_at(RandomState::Range range, uint64_t block) noexcept {
  const auto x = philox(range.seed, range.first + block);
  return {x[0] | static_cast<uint64_t>(x[1]) << 32, x[2] | static_cast<uint64_t>(x[3]) << 32};
}

// [0, 1) with `Bits` bits.
template <int Bits>
double unit(uint64_t bits) noexcept {
  return static_cast<double>(bits >> (64 - Bits)) *
         (1.0 / static_cast<double>(uint64_t{1} << Bits));
}

template <typename T>
constexpr int kMantissaBits = 24;
template <>
constexpr int kMantissaBits<double> = 53;
template <>
constexpr int kMantissaBits<Half> = 11;
template <>
constexpr int kMantissaBits<Bfloat16> = 8;

// Fills `out` (any strides) with make(pair, first), which gives two values per block.
template <typename T, typename Make>
void fill(const Tensor& out, RandomState& state, const OpContext& context, Make make) {
  const bool direct = out.is_contiguous();
  const Tensor target = direct ? out : empty(out.sizes(), out.dtype(), context);
  const int64_t count = target.numel();
  const int64_t blocks = (count + 1) / 2;
  const auto range = state.reserve(static_cast<uint64_t>(blocks));
  auto* to = target.data_as<T>();
  parallel_for(blocks, kGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto values = make(pair_at(range, static_cast<uint64_t>(block)), 2 * block);
      to[2 * block] = values.first;
      if (2 * block + 1 < count) to[2 * block + 1] = values.second;
    }
  });
  if (!direct) strided_copy(out, target);
}

template <typename Body>
void dispatch_floating(const char* op, const Tensor& out, Body body) {
  require_floating(op, "self", out);
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) body.template operator()<T>();
  });
}

void check_probability(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw InputError(str(op, ": probability ", p, "; expected 0 to 1"));
  }
}

// Below `range` (0: any), evenly but for a bias under range / 2^64.
uint64_t below(uint64_t bits, uint64_t range) noexcept {
  if (range == 0) return bits;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * range) >> 64);
}

}  // namespace

void fill_uniform(const Tensor& out, double low, double high, RandomState& state,
                  const OpContext& context) {
  if (!(low <= high) || !std::isfinite(high - low)) {
    throw InputError(str("uniform: range ", low, " to ", high, "; expected finite, in order"));
  }
  dispatch_floating("uniform", out, [&]<typename T>() {
    const auto value = [low, high](uint64_t bits) {
      const T result = convert_value<T>(low + (high - low) * unit<kMantissaBits<T>>(bits));
      // Rounding to the dtype may reach the end, which is not in the range.
      return static_cast<double>(result) >= high ? convert_value<T>(low) : result;
    };
    fill<T>(out, state, context,
            [value](Pair pair, int64_t) { return std::pair<T, T>(value(pair.a), value(pair.b)); });
  });
}

void fill_normal(const Tensor& out, double mean, double std, RandomState& state,
                 const OpContext& context) {
  if (!(std >= 0)) throw InputError(str("normal: std is ", std, "; expected 0 or more"));
  dispatch_floating("normal", out, [&]<typename T>() {
    // Box and Muller: a radius from one uniform number in (0, 1], an angle from the other.
    fill<T>(out, state, context, [mean, std](Pair pair, int64_t) {
      const double radius = std * std::sqrt(-2 * std::log(1 - unit<53>(pair.a)));
      const double angle = 2 * std::numbers::pi * unit<53>(pair.b);
      return std::pair<T, T>(convert_value<T>(mean + radius * std::cos(angle)),
                             convert_value<T>(mean + radius * std::sin(angle)));
    });
  });
}

void fill_integers(const Tensor& out, int64_t low, int64_t high, RandomState& state,
                   const OpContext& context) {
  if (low >= high) {
    throw InputError(str("randint: range ", low, " to ", high, "; expected low < high"));
  }
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const auto value = [low, range](uint64_t bits) {
    return static_cast<int64_t>(static_cast<uint64_t>(low) + below(bits, range));
  };
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    fill<T>(out, state, context, [value](Pair pair, int64_t) {
      return std::pair<T, T>(convert_value<T>(value(pair.a)), convert_value<T>(value(pair.b)));
    });
  });
}

void fill_exponential(const Tensor& out, double lambda, RandomState& state,
                      const OpContext& context) {
  if (!(lambda > 0)) throw InputError(str("exponential: lambda is ", lambda, "; expected > 0"));
  dispatch_floating("exponential", out, [&]<typename T>() {
    const auto value = [lambda](uint64_t bits) {
      return convert_value<T>(-std::log(1 - unit<53>(bits)) / lambda);
    };
    fill<T>(out, state, context,
            [value](Pair pair, int64_t) { return std::pair<T, T>(value(pair.a), value(pair.b)); });
  });
}

void fill_bernoulli(const Tensor& out, double p, RandomState& state, const OpContext& context) {
  check_probability("bernoulli", p);
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    const auto value = [p](uint64_t bits) { return convert_value<T>(unit<53>(bits) < p); };
    fill<T>(out, state, context,
            [value](Pair pair, int64_t) { return std::pair<T, T>(value(pair.a), value(pair.b)); });
  });
}

void fill_bernoulli(const Tensor& out, const Tensor& p, RandomState& state,
                    const OpContext& context) {
  require_floating("bernoulli", "p", p);
  const Tensor packed =
      contiguous_as(expand("bernoulli", p, out.sizes()), Dtype::kFloat64, context);
  const auto* probability = packed.data_as<const double>();
  const int64_t count = packed.numel();
  for (int64_t i = 0; i < count; ++i) check_probability("bernoulli", probability[i]);
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    fill<T>(out, state, context, [probability, count](Pair pair, int64_t first) {
      const int64_t second = std::min(first + 1, count - 1);
      return std::pair<T, T>(convert_value<T>(unit<53>(pair.a) < probability[first]),
                             convert_value<T>(unit<53>(pair.b) < probability[second]));
    });
  });
}

Tensor randperm(int64_t n, Dtype dtype, RandomState& state, const OpContext& context) {
  if (n < 0) throw InputError(str("randperm: n is ", n, "; expected 0 or more"));
  const Tensor order = empty(Dims{n}, Dtype::kInt64, context);
  auto* values = order.data_as<int64_t>();
  for (int64_t i = 0; i < n; ++i) values[i] = i;
  const auto range = state.reserve(static_cast<uint64_t>(n));
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t bits = pair_at(range, static_cast<uint64_t>(i)).a;
    std::swap(values[i], values[below(bits, static_cast<uint64_t>(i) + 1)]);
  }
  return contiguous_as(order, dtype, context);
}

std::pair<Tensor, Tensor> dropout(const Tensor& input, double p, bool train, RandomState& state,
                                  const OpContext& context) {
  require_floating("native_dropout", "input", input);
  check_probability("native_dropout", p);
  const Dims strides = strides_like(input);
  Tensor output = empty_strided(input.sizes(), strides, input.dtype(), context);
  Tensor mask = empty_strided(input.sizes(), strides, Dtype::kBool, context);
  strided_copy(output, input);
  fill_bernoulli(mask, train ? 1 - p : 1.0, state, context);
  if (!train) return {std::move(output), std::move(mask)};
  const double scale = p < 1 ? 1 / (1 - p) : 0.0;
  // Both results are dense in the same order, so they can be walked as flat memory.
  dispatch_dtype(input.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      using C = std::conditional_t<kIsReduced<T>, float, T>;
      auto* out = output.data_as<T>();
      const auto* keep = mask.data_as<const bool>();
      parallel_for(output.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<T>(keep[i] ? static_cast<C>(out[i]) * static_cast<C>(scale) : C{});
        }
      });
    }
  });
  return {std::move(output), std::move(mask)};
}

}  // namespace cudaexec::ops
