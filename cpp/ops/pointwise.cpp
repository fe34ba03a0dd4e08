#include "ops/pointwise.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {
namespace {

// What elements are computed in.
template <typename T>
using Compute = std::conditional_t<kIsReduced<T>, float, T>;

int category(Dtype dtype) { return dtype == Dtype::kBool ? 0 : is_floating_point(dtype) ? 2 : 1; }

// A 0-d tensor gives way to the other's dtype unless its category (bool, integer, float) is higher.
Dtype result_dtype(const Tensor& a, const Tensor& b) {
  const bool a_scalar = a.dim() == 0;
  const bool b_scalar = b.dim() == 0;
  if (a_scalar == b_scalar) return promote(a.dtype(), b.dtype());
  const Dtype sized = a_scalar ? b.dtype() : a.dtype();
  const Dtype scalar = a_scalar ? a.dtype() : b.dtype();
  return category(scalar) > category(sized) ? promote(a.dtype(), b.dtype()) : sized;
}

Dtype beside_number(const Tensor& self) {
  return is_floating_point(self.dtype()) ? self.dtype() : Dtype::kFloat32;
}

// `tensor` converted and laid out with `strides`, which are dense.
Tensor laid_out(const Tensor& tensor, const Dims& strides, Dtype dtype, const OpContext& context) {
  Tensor copy = empty_strided(tensor.sizes(), strides, dtype, context);
  strided_convert(copy, tensor);
  return copy;
}

// out[i] = function(out[i]) over dense memory, computed in `dtype`, its own.
template <typename Function>
void transform(const Tensor& out, Function function) {
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    T* to = out.data_as<T>();
    parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = static_cast<T>(function(static_cast<Compute<T>>(to[i])));
      }
    });
  });
}

template <typename Function>
Tensor unary(const Tensor& self, Dtype dtype, const OpContext& context, Function function) {
  Tensor out = laid_out(self, strides_like(self), dtype, context);
  transform(out, function);
  return out;
}

template <typename Function>
Tensor binary(const char* op, const Tensor& a, const Tensor& b, Dtype dtype,
              const OpContext& context, Function function) {
  const Dims sizes = broadcast_sizes(op, std::vector<Dims>{a.sizes(), b.sizes()});
  const Tensor wide_a = expand(op, a, sizes);
  const Tensor wide_b = expand(op, b, sizes);
  const Dims strides =
      ordered_strides(sizes, std::vector<Dims>{wide_a.strides(), wide_b.strides()});
  Tensor out = laid_out(wide_a, strides, dtype, context);
  const Tensor other = laid_out(wide_b, strides, dtype, context);
  dispatch_dtype(dtype, [&]<typename T>(T) {
    T* to = out.data_as<T>();
    const T* from = other.data_as<const T>();
    parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = static_cast<T>(
            function(static_cast<Compute<T>>(to[i]), static_cast<Compute<T>>(from[i])));
      }
    });
  });
  return out;
}

// Integers wrap around.
template <typename C>
C add_scaled(C a, C b, double alpha) {
  if constexpr (std::is_same_v<C, bool>) {
    return a || (b && alpha != 0);
  } else if constexpr (std::is_integral_v<C>) {
    const auto factor = static_cast<uint64_t>(static_cast<int64_t>(alpha));
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b) * factor);
  } else {
    return a + b * static_cast<C>(alpha);
  }
}

template <typename C>
C multiply(C a, C b) {
  if constexpr (std::is_same_v<C, bool>) {
    return a && b;
  } else if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename C>
C power(C base, C exponent) {
  if constexpr (std::is_same_v<C, bool>) {
    return base || !exponent;
  } else if constexpr (std::is_integral_v<C>) {
    if constexpr (std::is_signed_v<C>) {
      if (exponent < 0) {
        if (base == 1) return 1;
        if (base == -1) return exponent % 2 == 0 ? C{1} : C{-1};
        return 0;
      }
    }
    auto factor = static_cast<uint64_t>(base);
    uint64_t result = 1;
    for (auto rest = static_cast<uint64_t>(exponent); rest != 0; rest >>= 1) {
      if ((rest & 1) != 0) result *= factor;
      factor *= factor;
    }
    return static_cast<C>(result);
  } else {
    return std::pow(base, exponent);
  }
}

}  // namespace

Tensor add(const Tensor& self, const Tensor& other, double alpha, const OpContext& context) {
  return binary("add", self, other, result_dtype(self, other), context,
                [alpha](auto a, auto b) { return add_scaled(a, b, alpha); });
}

Tensor add(const Tensor& self, double other, double alpha, const OpContext& context) {
  const double term = other * alpha;
  return unary(self, beside_number(self), context,
               [term](auto a) { return a + static_cast<decltype(a)>(term); });
}

Tensor mul(const Tensor& self, const Tensor& other, const OpContext& context) {
  return binary("mul", self, other, result_dtype(self, other), context,
                [](auto a, auto b) { return multiply(a, b); });
}

Tensor mul(const Tensor& self, double other, const OpContext& context) {
  return unary(self, beside_number(self), context,
               [other](auto a) { return a * static_cast<decltype(a)>(other); });
}

Tensor pow(const Tensor& self, const Tensor& exponent, const OpContext& context) {
  return binary("pow", self, exponent, result_dtype(self, exponent), context,
                [](auto a, auto b) { return power(a, b); });
}

Tensor pow(const Tensor& self, double exponent, const OpContext& context) {
  return unary(self, beside_number(self), context, [exponent](auto a) {
    return static_cast<decltype(a)>(std::pow(a, static_cast<decltype(a)>(exponent)));
  });
}

Tensor pow(double self, const Tensor& exponent, const OpContext& context) {
  return unary(exponent, beside_number(exponent), context, [self](auto a) {
    return static_cast<decltype(a)>(std::pow(static_cast<decltype(a)>(self), a));
  });
}

Tensor gcd(const Tensor& self, const Tensor& other, const OpContext& context) {
  const Dtype dtype = result_dtype(self, other);
  if (category(dtype) != 1) {
    throw DtypeError(str("gcd: self is ", describe(self), " and other is ", describe(other),
                         "; expected integers"));
  }
  return binary("gcd", self, other, dtype, context, [](auto a, auto b) {
    if constexpr (std::is_integral_v<decltype(a)> && !std::is_same_v<decltype(a), bool>) {
      return std::gcd(a, b);
    } else {
      return a;
    }
  });
}

Tensor abs(const Tensor& self, const OpContext& context) {
  if (self.dtype() == Dtype::kBool) throw DtypeError("abs: self is bool; expected numbers");
  return unary(self, self.dtype(), context, [](auto a) {
    if constexpr (std::is_floating_point_v<decltype(a)>) {
      return std::fabs(a);
    } else if constexpr (std::is_signed_v<decltype(a)>) {
      return static_cast<decltype(a)>(a < 0 ? -a : a);
    } else {
      return a;
    }
  });
}

Tensor angle(const Tensor& self, const OpContext& context) {
  return unary(self, beside_number(self), context, [](auto a) {
    if constexpr (std::is_floating_point_v<decltype(a)>) {
      if (a < 0) return static_cast<decltype(a)>(std::numbers::pi);
      return a != a ? a : decltype(a){};
    } else {
      return a;  // the result is never an integer
    }
  });
}

}  // namespace cudaexec::ops
