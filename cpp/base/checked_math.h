// Arithmetic that reports overflow instead of wrapping; used on every number that comes from a file
// or a caller.
#pragma once

#include <concepts>
#include <optional>

namespace cudaexec {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// Whether [offset, offset + size) lies inside [0, limit), without overflow.
template <std::unsigned_integral T>
[[nodiscard]] constexpr bool range_inside(T offset, T size, T limit) noexcept {
  return offset <= limit && size <= limit - offset;
}

}  // namespace cudaexec
