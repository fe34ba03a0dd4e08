#include "tensor/convert.h"

#include <immintrin.h>

#include <cstring>

namespace cudaexec {
namespace {

template <typename T>
T load(const char* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(char* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

// A byte of a bool tensor that is neither 0 nor 1 still means true.
template <>
bool load<bool>(const char* from) noexcept {
  return *from != 0;
}

template <typename To, typename From>
void convert_row(int64_t count, char* dst, int64_t dst_stride, const char* src,
                 int64_t src_stride) {
  if (dst_stride == sizeof(To) && src_stride == sizeof(From)) {
    for (int64_t i = 0; i < count; ++i) {
      store(dst + i * static_cast<int64_t>(sizeof(To)),
            convert_value<To>(load<From>(src + i * static_cast<int64_t>(sizeof(From)))));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    store(dst + i * dst_stride, convert_value<To>(load<From>(src + i * src_stride)));
  }
}

template <typename Word>
void copy_row(int64_t count, char* dst, int64_t dst_stride, const char* src, int64_t src_stride) {
  constexpr int64_t kSize = sizeof(Word);
  if (dst_stride == kSize && src_stride == kSize) {
    std::memcpy(dst, src, static_cast<size_t>(count * kSize));
  } else if (dst_stride == kSize) {
    for (int64_t i = 0; i < count; ++i) store(dst + i * kSize, load<Word>(src + i * src_stride));
  } else {
    for (int64_t i = 0; i < count; ++i)
      store(dst + i * dst_stride, load<Word>(src + i * src_stride));
  }
}

__attribute__((target("avx,f16c"))) int64_t half_to_float_f16c(int64_t count, char* dst,
                                                               const char* src) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i * 2));
    _mm256_storeu_ps(reinterpret_cast<float*>(dst + i * 4), _mm256_cvtph_ps(bits));
  }
  return i;
}

__attribute__((target("avx,f16c"))) int64_t float_to_half_f16c(int64_t count, char* dst,
                                                               const char* src) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(src + i * 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i * 2),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

bool has_f16c() noexcept {
  static const bool supported = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return supported;
}

void half_to_float_row(int64_t count, char* dst, int64_t dst_stride, const char* src,
                       int64_t src_stride) {
  const bool packed = dst_stride == 4 && src_stride == 2;
  const int64_t done = packed && has_f16c() ? half_to_float_f16c(count, dst, src) : 0;
  convert_row<float, Half>(count - done, dst + done * dst_stride, dst_stride,
                           src + done * src_stride, src_stride);
}

void float_to_half_row(int64_t count, char* dst, int64_t dst_stride, const char* src,
                       int64_t src_stride) {
  const bool packed = dst_stride == 2 && src_stride == 4;
  const int64_t done = packed && has_f16c() ? float_to_half_f16c(count, dst, src) : 0;
  convert_row<Half, float>(count - done, dst + done * dst_stride, dst_stride,
                           src + done * src_stride, src_stride);
}

RowConverter copier(size_t itemsize) noexcept {
  switch (itemsize) {
    case 1:
      return copy_row<uint8_t>;
    case 2:
      return copy_row<uint16_t>;
    case 4:
      return copy_row<uint32_t>;
    default:
      return copy_row<uint64_t>;
  }
}

}  // namespace

RowConverter row_converter(Dtype to, Dtype from) noexcept {
  if (to == from) return copier(dtype_size(to));
  if (to == Dtype::kFloat32 && from == Dtype::kFloat16) return half_to_float_row;
  if (to == Dtype::kFloat16 && from == Dtype::kFloat32) return float_to_half_row;
  return dispatch_dtype(to, [from]<typename To>(To) -> RowConverter {
    return dispatch_dtype(
        from, []<typename From>(From) -> RowConverter { return convert_row<To, From>; });
  });
}

}  // namespace cudaexec
