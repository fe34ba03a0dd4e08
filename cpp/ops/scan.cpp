#include "ops/scan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "ops/sort_keys.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kColumns = 256;  // columns that are scanned together, their state on the stack

// What torch accumulates in on the CPU.
template <typename T>
struct AccumulatorOf {
  using type = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
};
template <>
struct AccumulatorOf<Half> {
  using type = float;
};
template <>
struct AccumulatorOf<Bfloat16> {
  using type = float;
};

// Runs body(first_element, columns) for every block of columns of [outer, count, inner].
template <typename Body>
void for_columns(const Split& split, Body body) {
  if (split.outer * split.count * split.inner == 0) return;
  const int64_t blocks = (split.inner + kColumns - 1) / kColumns;
  const int64_t unit = split.count * std::min(split.inner, kColumns);
  parallel_for(split.outer * blocks, std::max<int64_t>(1, kGrain / unit),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t column = i % blocks * kColumns;
                   body(i / blocks * split.count * split.inner + column,
                        std::min(kColumns, split.inner - column));
                 }
               });
}

// `step(state, value)` updates a state and gives the result for this position.
template <typename T, typename State, typename Step>
void scan(const Split& split, const T* in, T* out, State initial, Step step) {
  using Accumulator = typename AccumulatorOf<T>::type;
  for_columns(split, [&](int64_t first, int64_t columns) {
    if (columns == 1) {
      State state = initial;
      for (int64_t i = 0; i < split.count; ++i) {
        const int64_t at = first + i * split.inner;
        out[at] = static_cast<T>(step(state, static_cast<Accumulator>(in[at])));
      }
      return;
    }
    std::array<State, kColumns> states;
    std::fill_n(states.begin(), columns, initial);
    for (int64_t i = 0; i < split.count; ++i) {
      const T* from = in + first + i * split.inner;
      T* to = out + first + i * split.inner;
      for (int64_t c = 0; c < columns; ++c) {
        to[c] =
            static_cast<T>(step(states[static_cast<size_t>(c)], static_cast<Accumulator>(from[c])));
      }
    }
  });
}

template <typename Step>
Tensor scan_as(const char* op, const Tensor& self, int64_t dim, Dtype dtype, double initial,
               const OpContext& context, Step step) {
  dim = wrap_dim(op, dim, self.dim());
  const Tensor input = contiguous_as(self, dtype, context);
  Tensor result = empty(self.sizes(), dtype, context);
  const Split split = split_at(self.sizes(), dim);
  dispatch_dtype(dtype, [&]<typename T>(T) {
    using Accumulator = typename AccumulatorOf<T>::type;
    scan<T>(split, input.data_as<const T>(), result.data_as<T>(), static_cast<Accumulator>(initial),
            step);
  });
  return result;
}

Dtype sum_dtype(const Tensor& self, std::optional<Dtype> dtype) {
  return dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : Dtype::kInt64);
}

struct Add {
  template <typename A>
  A operator()(A& state, A value) const {
    if constexpr (std::is_integral_v<A>) {
      state = static_cast<A>(static_cast<uint64_t>(state) + static_cast<uint64_t>(value));
    } else {
      state += value;
    }
    return state;
  }
};

struct Multiply {
  template <typename A>
  A operator()(A& state, A value) const {
    if constexpr (std::is_integral_v<A>) {
      state = static_cast<A>(static_cast<uint64_t>(state) * static_cast<uint64_t>(value));
    } else {
      state *= value;
    }
    return state;
  }
};

// log(sum(exp(x))) as a largest value and the sum of exp(x - largest): one exponential per step.
template <typename A>
struct LogSum {
  A largest = -std::numeric_limits<A>::infinity();
  A sum = 0;

  A step(A value) {
    if (value <= largest) {
      // Nothing is added to infinity, and -infinity adds nothing.
      if (std::isfinite(value)) sum += std::exp(value - largest);
    } else if (value > largest) {
      sum = std::isfinite(value) ? sum * std::exp(largest - value) + 1 : A{1};
      largest = value;
    } else {
      largest = largest != largest ? largest : value;  // NaN stays
    }
    return std::isfinite(largest) ? largest + std::log(sum) : largest;
  }
};

template <typename T, typename Replaces>
void running_extreme(const Split& split, const T* in, T* values, int64_t* indices,
                     Replaces replaces) {
  for_columns(split, [&](int64_t first, int64_t columns) {
    for (int64_t c = 0; c < columns; ++c) {
      T best = in[first + c];
      int64_t best_at = 0;
      for (int64_t i = 0; i < split.count; ++i) {
        const int64_t at = first + c + i * split.inner;
        const T value = in[at];
        if (is_nan(value) || (!is_nan(best) && replaces(value, best))) {
          best = value;
          best_at = i;
        }
        values[at] = best;
        indices[at] = best_at;
      }
    }
  });
}

template <typename Replaces>
std::pair<Tensor, Tensor> extreme(const char* op, const Tensor& self, int64_t dim,
                                  const OpContext& context, Replaces replaces) {
  dim = wrap_dim(op, dim, self.dim());
  const Tensor input = contiguous(self, context);
  Tensor values = empty(self.sizes(), self.dtype(), context);
  Tensor indices = empty(self.sizes(), Dtype::kInt64, context);
  const Split split = split_at(self.sizes(), dim);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    running_extreme(split, input.data_as<const T>(), values.data_as<T>(),
                    indices.data_as<int64_t>(), replaces);
  });
  return {std::move(values), std::move(indices)};
}

}  // namespace

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
              const OpContext& context) {
  return scan_as("cumsum", self, dim, sum_dtype(self, dtype), 0.0, context, Add{});
}

Tensor cumprod(const Tensor& self, int64_t dim, std::optional<Dtype> dtype,
               const OpContext& context) {
  return scan_as("cumprod", self, dim, sum_dtype(self, dtype), 1.0, context, Multiply{});
}

Tensor logcumsumexp(const Tensor& self, int64_t dim, const OpContext& context) {
  require_floating("logcumsumexp", "self", self);
  dim = wrap_dim("logcumsumexp", dim, self.dim());
  const Tensor input = contiguous(self, context);
  Tensor result = empty(self.sizes(), self.dtype(), context);
  const Split split = split_at(self.sizes(), dim);
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      using Accumulator = typename AccumulatorOf<T>::type;
      scan<T>(split, input.data_as<const T>(), result.data_as<T>(), LogSum<Accumulator>{},
              [](LogSum<Accumulator>& state, Accumulator value) { return state.step(value); });
    }
  });
  return result;
}

std::pair<Tensor, Tensor> cummax(const Tensor& self, int64_t dim, const OpContext& context) {
  return extreme("cummax", self, dim, context,
                 [](auto value, auto best) { return !(value < best); });
}

std::pair<Tensor, Tensor> cummin(const Tensor& self, int64_t dim, const OpContext& context) {
  return extreme("cummin", self, dim, context,
                 [](auto value, auto best) { return !(best < value); });
}

}  // namespace cudaexec::ops
