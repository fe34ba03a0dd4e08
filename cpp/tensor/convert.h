// Conversion between element types, one value and rows of values, with torch's results.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace cudaexec {

template <typename T>
inline constexpr bool kIsReduced = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;
template <typename T>
inline constexpr bool kIsFloating = kIsReduced<T> || std::is_floating_point_v<T>;

/// Truncation towards zero. Outside the range, and for NaN, the result is what x86's conversion
/// instructions give, as in torch: the lowest int32 or int64, of which narrower types keep low
/// bits.
template <typename To, typename From>
[[nodiscard]] constexpr To truncate_to(From value) noexcept {
  using Wide =
      std::conditional_t<(sizeof(To) == 8 || std::is_same_v<To, uint8_t>), int64_t, int32_t>;
  constexpr From kLimit =
      static_cast<From>(sizeof(Wide) == 8 ? 9223372036854775808.0 : 2147483648.0);
  const bool inside = value >= -kLimit && value < kLimit;
  return static_cast<To>(inside ? static_cast<Wide>(value) : std::numeric_limits<Wide>::min());
}

/// One element, as torch's `Tensor.to` converts it.
template <typename To, typename From>
[[nodiscard]] constexpr To convert_value(From value) noexcept {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsReduced<From>) {
    return convert_value<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else if constexpr (kIsReduced<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return truncate_to<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// Converts `count` elements; strides in bytes. No overlap.
using RowConverter = void (*)(int64_t count, char* dst, int64_t dst_stride, const char* src,
                              int64_t src_stride);

/// The converter of a pair of dtypes (the same dtype twice: a copy).
RowConverter row_converter(Dtype to, Dtype from) noexcept;

/// Calls `body(T{})` with the C++ type of `dtype`.
template <typename Body>
decltype(auto) dispatch_dtype(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::kUint8:
      return body(uint8_t{});
    case Dtype::kInt8:
      return body(int8_t{});
    case Dtype::kInt16:
      return body(int16_t{});
    case Dtype::kInt32:
      return body(int32_t{});
    case Dtype::kInt64:
      return body(int64_t{});
    case Dtype::kFloat16:
      return body(Half{});
    case Dtype::kFloat32:
      return body(float{});
    case Dtype::kFloat64:
      return body(double{});
    case Dtype::kBfloat16:
      return body(Bfloat16{});
    case Dtype::kBool:
      break;
  }
  return body(bool{});
}

}  // namespace cudaexec
