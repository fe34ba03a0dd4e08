#include "tensor/dtype.h"

#include <array>

namespace cudaexec {
namespace {

struct DtypeInfo {
  Dtype dtype;
  const char* name;
};

constexpr std::array<DtypeInfo, 10> kDtypes{{
    {Dtype::kUint8, "uint8"},
    {Dtype::kInt8, "int8"},
    {Dtype::kInt16, "int16"},
    {Dtype::kInt32, "int32"},
    {Dtype::kInt64, "int64"},
    {Dtype::kFloat16, "float16"},
    {Dtype::kFloat32, "float32"},
    {Dtype::kFloat64, "float64"},
    {Dtype::kBool, "bool"},
    {Dtype::kBfloat16, "bfloat16"},
}};

}  // namespace

std::optional<Dtype> dtype_from_name(std::string_view name) noexcept {
  for (const auto& info : kDtypes) {
    if (name == info.name) return info.dtype;
  }
  return std::nullopt;
}

const char* dtype_name(Dtype dtype) noexcept {
  for (const auto& info : kDtypes) {
    if (info.dtype == dtype) return info.name;
  }
  return "unknown";
}

}  // namespace cudaexec
