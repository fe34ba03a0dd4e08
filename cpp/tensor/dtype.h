// Element types, by torch's codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/export.h"

namespace cudaexec {

enum class Dtype : int32_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 11,
  kBfloat16 = 15,
};

/// The Dtype of a name such as "float32" (the names of docs/format.md).
CUDAEXEC_API std::optional<Dtype> dtype_from_name(std::string_view name) noexcept;
CUDAEXEC_API const char* dtype_name(Dtype dtype) noexcept;
/// Bytes per element.
[[nodiscard]] constexpr size_t dtype_size(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kInt8:
    case Dtype::kBool:
      return 1;
    case Dtype::kInt16:
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kFloat64:
      return 8;
  }
  return 0;
}

/// The Dtype of a torch code, or nothing where it is not supported.
[[nodiscard]] constexpr std::optional<Dtype> dtype_from_code(int32_t code) noexcept {
  const auto dtype = static_cast<Dtype>(code);
  return dtype_size(dtype) != 0 ? std::optional(dtype) : std::nullopt;
}

[[nodiscard]] constexpr bool is_floating_point(Dtype dtype) noexcept {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat32 ||
         dtype == Dtype::kFloat64;
}

}  // namespace cudaexec
