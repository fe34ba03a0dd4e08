#include "tensor/convert.h"

#include <cstring>

#include "tensor/rows.h"

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

// Packed rows by the kernel of the pair, others element by element.
template <typename To, typename From, auto Kernel>
void convert_packed(int64_t count, char* dst, int64_t dst_stride, const char* src,
                    int64_t src_stride) {
  using ToWord = std::conditional_t<sizeof(To) == 2, uint16_t, float>;
  using FromWord = std::conditional_t<sizeof(From) == 2, uint16_t, float>;
  if (dst_stride == sizeof(To) && src_stride == sizeof(From)) {
    (row_kernels().*Kernel)(reinterpret_cast<ToWord*>(dst), reinterpret_cast<const FromWord*>(src),
                            count);
  } else {
    convert_row<To, From>(count, dst, dst_stride, src, src_stride);
  }
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
  if (to == Dtype::kFloat32 && from == Dtype::kFloat16) {
    return convert_packed<float, Half, &RowKernels::f16_to_f32>;
  }
  if (to == Dtype::kFloat16 && from == Dtype::kFloat32) {
    return convert_packed<Half, float, &RowKernels::f32_to_f16>;
  }
  if (to == Dtype::kFloat32 && from == Dtype::kBfloat16) {
    return convert_packed<float, Bfloat16, &RowKernels::bf16_to_f32>;
  }
  if (to == Dtype::kBfloat16 && from == Dtype::kFloat32) {
    return convert_packed<Bfloat16, float, &RowKernels::f32_to_bf16>;
  }
  return dispatch_dtype(to, [from]<typename To>(To) -> RowConverter {
    return dispatch_dtype(
        from, []<typename From>(From) -> RowConverter { return convert_row<To, From>; });
  });
}

}  // namespace cudaexec
