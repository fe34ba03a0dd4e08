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

/// The Dtype of a torch code, or nothing where it is not supported.
CUDAEXEC_API std::optional<Dtype> dtype_from_code(int32_t code) noexcept;
/// The Dtype of a name such as "float32" (the names of docs/format.md).
CUDAEXEC_API std::optional<Dtype> dtype_from_name(std::string_view name) noexcept;
CUDAEXEC_API const char* dtype_name(Dtype dtype) noexcept;
/// Bytes per element.
CUDAEXEC_API size_t dtype_size(Dtype dtype) noexcept;

[[nodiscard]] constexpr bool is_floating_point(Dtype dtype) noexcept {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat32 ||
         dtype == Dtype::kFloat64;
}

}  // namespace cudaexec
