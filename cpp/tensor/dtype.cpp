#include "tensor/dtype.h"

#include <array>

namespace cudaexec {
namespace {

struct DtypeInfo {
  Dtype dtype;
  const char* name;
  size_t nbytes;
};

constexpr std::array<DtypeInfo, 10> kDtypes{{
    {Dtype::kUint8, "uint8", 1},
    {Dtype::kInt8, "int8", 1},
    {Dtype::kInt16, "int16", 2},
    {Dtype::kInt32, "int32", 4},
    {Dtype::kInt64, "int64", 8},
    {Dtype::kFloat16, "float16", 2},
    {Dtype::kFloat32, "float32", 4},
    {Dtype::kFloat64, "float64", 8},
    {Dtype::kBool, "bool", 1},
    {Dtype::kBfloat16, "bfloat16", 2},
}};

const DtypeInfo* find(Dtype dtype) noexcept {
  for (const auto& info : kDtypes) {
    if (info.dtype == dtype) return &info;
  }
  return nullptr;
}

}  // namespace

std::optional<Dtype> dtype_from_code(int32_t code) noexcept {
  const auto dtype = static_cast<Dtype>(code);
  return find(dtype) != nullptr ? std::optional(dtype) : std::nullopt;
}

std::optional<Dtype> dtype_from_name(std::string_view name) noexcept {
  for (const auto& info : kDtypes) {
    if (name == info.name) return info.dtype;
  }
  return std::nullopt;
}

const char* dtype_name(Dtype dtype) noexcept {
  const auto* info = find(dtype);
  return info != nullptr ? info->name : "unknown";
}

size_t dtype_size(Dtype dtype) noexcept {
  const auto* info = find(dtype);
  return info != nullptr ? info->nbytes : 0;
}

}  // namespace cudaexec
