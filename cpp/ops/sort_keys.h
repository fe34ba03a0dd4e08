// Elements as unsigned keys of the same order, paired with their index, so that sorting compares
// integers and is stable by construction.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tensor/convert.h"

namespace cudaexec::ops {

template <size_t Size>
using UnsignedOf = std::conditional_t<
    Size == 1, uint8_t,
    std::conditional_t<Size == 2, uint16_t, std::conditional_t<Size == 4, uint32_t, uint64_t>>>;

template <typename T>
bool is_nan(T value) noexcept {
  if constexpr (std::is_same_v<T, Half>) {
    return (value.bits & 0x7fffU) > 0x7c00U;
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return (value.bits & 0x7fffU) > 0x7f80U;
  } else if constexpr (std::is_floating_point_v<T>) {
    return value != value;
  } else {
    return false;
  }
}

template <typename T>
UnsignedOf<sizeof(T)> order_key(T value) noexcept {
  using Key = UnsignedOf<sizeof(T)>;
  constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  Key bits;
  std::memcpy(&bits, &value, sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return bits != 0 ? 1 : 0;
  } else if constexpr (std::is_unsigned_v<T>) {
    return bits;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(bits ^ kSign);
  } else {
    if (is_nan(value)) return std::numeric_limits<Key>::max();
    if (bits == kSign) bits = 0;  // -0
    return static_cast<Key>((bits & kSign) != 0 ? ~bits : bits | kSign);
  }
}

/// Key and index in one word: for keys of up to 32 bits and lines of up to 2^32 elements.
struct PackedEntry {
  uint64_t word;

  static constexpr size_t kKeyShift = 32;
  [[nodiscard]] uint64_t key() const noexcept { return word >> kKeyShift; }
  [[nodiscard]] int64_t index() const noexcept { return static_cast<int64_t>(word & 0xffffffffU); }
  [[nodiscard]] static PackedEntry make(uint64_t key, int64_t index) noexcept {
    return {key << kKeyShift | static_cast<uint64_t>(index)};
  }
  friend bool operator<(PackedEntry a, PackedEntry b) noexcept { return a.word < b.word; }
};

struct WideEntry {
  uint64_t high;
  int64_t low;

  [[nodiscard]] uint64_t key() const noexcept { return high; }
  [[nodiscard]] int64_t index() const noexcept { return low; }
  [[nodiscard]] static WideEntry make(uint64_t key, int64_t index) noexcept { return {key, index}; }
  friend bool operator<(WideEntry a, WideEntry b) noexcept {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
};

/// Calls body.template operator()<T, Entry>() for the dtype and the length of its lines.
template <typename Body>
void dispatch_entries(Dtype dtype, int64_t length, Body&& body) {
  dispatch_dtype(dtype, [&]<typename T>(T) {
    if (sizeof(T) <= 4 && length <= int64_t{1} << 32) {
      body.template operator()<T, PackedEntry>();
    } else {
      body.template operator()<T, WideEntry>();
    }
  });
}

/// The entry that sorts first for the wanted direction.
template <typename Entry, typename T>
Entry make_entry(T value, int64_t index, bool descending) noexcept {
  auto key = order_key(value);
  if (descending) key = static_cast<decltype(key)>(~key);
  return Entry::make(key, index);
}

}  // namespace cudaexec::ops
