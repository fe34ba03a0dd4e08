// float16 and bfloat16 as storage types: they convert to and from float, rounding to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace cudaexec {

[[nodiscard]] constexpr float half_bits_to_float(uint16_t bits) noexcept {
  constexpr uint32_t kBias = 112U << 23;  // exponent bias 127 against 15
  constexpr uint32_t kExponent = 0x0f800000U;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffU) << 13;
  const uint32_t exponent = magnitude & kExponent;
  magnitude += kBias;
  if (exponent == kExponent) {
    magnitude += kBias;  // infinity, NaN (made quiet)
    if ((bits & 0x3ffU) != 0) magnitude |= 1U << 22;
  } else if (exponent == 0) {
    // Subnormal: put the mantissa behind 2^-14 and take 2^-14 off again.
    const uint32_t shifted = magnitude + (1U << 23);
    magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) -
                                        std::bit_cast<float>(kBias + (1U << 23)));
  }
  return std::bit_cast<float>(sign | magnitude);
}

[[nodiscard]] constexpr uint16_t float_to_half_bits(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    magnitude = 0x7e00U | ((magnitude >> 13) & 0x3ffU);  // NaN, quiet, as F16C instructions do
  } else if (magnitude >= 0x47800000U) {
    magnitude = 0x7c00U;  // 65536 and more: infinity
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal: adding 0.5 leaves it, rounded, in the low mantissa bits.
    magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                std::bit_cast<uint32_t>(0.5F);
  } else {
    magnitude += 0xfffU + ((magnitude >> 13) & 1U);
    magnitude = (magnitude - (112U << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | magnitude);
}

[[nodiscard]] constexpr float bfloat_bits_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

[[nodiscard]] constexpr uint16_t float_to_bfloat_bits(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0U;
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

struct Half {
  uint16_t bits = 0;

  Half() noexcept = default;
  constexpr explicit Half(float value) noexcept : bits(float_to_half_bits(value)) {}
  constexpr operator float() const noexcept { return half_bits_to_float(bits); }
};

struct Bfloat16 {
  uint16_t bits = 0;

  Bfloat16() noexcept = default;
  constexpr explicit Bfloat16(float value) noexcept : bits(float_to_bfloat_bits(value)) {}
  constexpr operator float() const noexcept { return bfloat_bits_to_float(bits); }
};

static_assert(sizeof(Half) == 2 && sizeof(Bfloat16) == 2);

}  // namespace cudaexec
