// What a KV cache stores its tokens as. float8 has no tensors of its own here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudaexec {

enum class KvDtype : uint8_t { kFloat32, kFloat16, kBfloat16, kFloat8E4m3 };

/// Bytes of one element.
[[nodiscard]] constexpr size_t kv_dtype_size(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::kFloat32:
      return 4;
    case KvDtype::kFloat8E4m3:
      return 1;
    default:
      return 2;
  }
}

/// As the manifest spells it.
[[nodiscard]] constexpr const char* kv_dtype_name(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::kFloat32:
      return "float32";
    case KvDtype::kFloat16:
      return "float16";
    case KvDtype::kBfloat16:
      return "bfloat16";
    default:
      return "float8_e4m3fn";
  }
}

}  // namespace cudaexec
