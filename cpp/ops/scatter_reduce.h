// The reductions of scatter, element by element.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/op_context.h"
#include "ops/sort_keys.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

enum class Reduce { kSum, kProd, kMean, kAmax, kAmin };

template <typename T>
T identity_of(Reduce reduce) {
  using Limits = std::numeric_limits<T>;
  switch (reduce) {
    case Reduce::kProd:
      return T(1);
    case Reduce::kAmax:
      return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    case Reduce::kAmin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return T(0);
  }
}

template <typename T>
void combine(Reduce reduce, T& to, T value) {
  switch (reduce) {
    case Reduce::kProd:
      to = static_cast<T>(to * value);
      break;
    case Reduce::kAmax:
      to = is_nan(value) || to < value ? value : to;
      break;
    case Reduce::kAmin:
      to = is_nan(value) || value < to ? value : to;
      break;
    default:
      if constexpr (std::is_same_v<T, bool>) {
        to = to || value;
      } else {
        to = static_cast<T>(to + value);
      }
  }
}

template <typename T>
T divide(T sum, int64_t count) {
  if constexpr (std::is_integral_v<T>) {
    const auto wide = static_cast<int64_t>(sum);
    const int64_t quotient = wide / count;
    return static_cast<T>(wide % count != 0 && wide < 0 ? quotient - 1 : quotient);
  } else {
    return sum / static_cast<T>(count);
  }
}

/// Adds row i of `src` to row index[i] of `out`, or combines otherwise: what scatter does where all
/// elements of a row share one index. `index` is 1-D int64, `src` contiguous [rows, ...], `out` has
/// the same dtype (no half type) and contiguous rows. @throws InputError for an index out of range.
void scatter_rows(const Tensor& out, const Tensor& index, const Tensor& src, Reduce reduce,
                  bool include_self, const OpContext& context);

}  // namespace cudaexec::ops
