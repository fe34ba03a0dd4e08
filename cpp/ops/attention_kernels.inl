// Score rows. Included by a file that is compiled for one instruction set and defines
// CUDAEXEC_VECTOR_BYTES.
#include "ops/attention_kernels.h"
#include "ops/gemm_vector.inl"

namespace cudaexec::ops {
namespace {

inline VecF as_float(VecI v) { return (VecF)v; }

/// exp to 1.5 units in the last place for arguments up to 0 (and to overflow above); -inf gives 0.
inline VecF exp_vector(VecF x) {
  const VecF kLowest = -87.3f - VecF{};
  const VecF kHighest = 88.7f - VecF{};
  const auto is_tiny = x < kLowest;
  VecF clamped = is_tiny ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  // 2^n e^r with |r| <= ln 2 / 2; adding and taking away 1.5 * 2^23 rounds to an integer.
  const VecF kRound = 12582912.0f - VecF{};
  const VecF shifted = clamped * 1.44269504088896341f + kRound;
  const VecF n = shifted - kRound;
  VecF r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  VecF p = 1.9875691500e-4f - VecF{};
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const VecI power = ((VecI)shifted - 0x4b400000 + 127) << 23;
  const VecF value = p * as_float(power);
  const VecF zero = {};
  const VecF not_nan = is_tiny ? zero : value;
  return x == x ? not_nan : x;
}

template <typename V>
inline auto sum_of(V v) {
  auto total = v[0];
  for (int i = 1; i < static_cast<int>(sizeof(V) / sizeof(v[0])); ++i) total += v[i];
  return total;
}

float exponentiate_floats(float* row, int64_t count, float shift) {
  constexpr int64_t kStep = kLanes<float>;
  VecF sums = {};
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const VecF value = exp_vector(load(row + i) - shift);
    store(row + i, value);
    sums += value;
  }
  float total = sum_of(sums);
  if (i < count) {
    VecF rest = -__builtin_inff() - VecF{};
    std::memcpy(&rest, row + i, static_cast<size_t>(count - i) * sizeof(float));
    const VecF value = exp_vector(rest - shift);
    std::memcpy(row + i, &value, static_cast<size_t>(count - i) * sizeof(float));
    total += sum_of(value);
  }
  return total;
}

double exponentiate_doubles(double* row, int64_t count, double shift) {
  double total = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    row[i] = __builtin_exp(row[i] - shift);
    total += row[i];
  }
  return total;
}

template <typename T>
T largest(const T* row, int64_t count) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kStep = kLanes<T>;
  T best = row[0];
  int64_t i = 0;
  if (count >= kStep) {
    V bests = load(row);
    for (i = kStep; i + kStep <= count; i += kStep) {
      const V value = load(row + i);
      bests = (bests >= value) | (bests != bests) ? bests : value;
    }
    best = bests[0];
    for (int lane = 1; lane < kStep; ++lane) {
      best = best >= bests[lane] || best != best ? best : bests[lane];
    }
  }
  for (; i < count; ++i) best = best >= row[i] || best != best ? best : row[i];
  return best;
}

template <typename T>
void scale(T* row, int64_t count, T factor) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

template <typename T>
void add(T* row, const T* other, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] += other[i];
}

void widen_f8(float* __restrict dst, const uint8_t* __restrict src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = src[i];
    // The bits are float32's with an exponent that is 120 too small, subnormal ones too.
    const float value = float_of_bits((code & 0x7fu) << 20) * 0x1p120f;
    const uint32_t magnitude = (code & 0x7fu) == 0x7fu ? 0x7fc00000u : bits_of_float(value);
    dst[i] = float_of_bits(magnitude | (code & 0x80u) << 24);
  }
}

void narrow_f8(uint8_t* __restrict dst, const float* __restrict src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of_float(src[i]);
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t all = bits & 0x7fffffffu;
    const uint32_t size = all > 0x43e00000u ? 0x43e00000u : all;  // 448
    const uint32_t normal = (size + 0x7ffffu + (size >> 20 & 1u) - (120u << 23)) >> 20;
    // Below 2^-6 the steps are 2^-9, those of floats from 2^14 on.
    const uint32_t subnormal = bits_of_float(float_of_bits(size) + 16384.0f) - 0x46800000u;
    const uint32_t code = size < 0x3c800000u ? subnormal : normal;
    dst[i] = static_cast<uint8_t>(sign | (all > 0x7f800000u ? 0x7fu : code));
  }
}

constexpr AttentionKernel<float> kFloats{largest<float>, exponentiate_floats, scale<float>,
                                         add<float>};
constexpr AttentionKernel<double> kDoubles{largest<double>, exponentiate_doubles, scale<double>,
                                           add<double>};

}  // namespace
}  // namespace cudaexec::ops
