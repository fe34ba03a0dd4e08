// The tile kernel and packing. A file compiled for one instruction set defines
// CUDAEXEC_VECTOR_BYTES and CUDAEXEC_TILE_ROWS, then includes this.
#include "ops/gemm_vector.inl"

namespace cudaexec::ops {
namespace {

constexpr int kTileRows = CUDAEXEC_TILE_ROWS;
constexpr int kPanelVectors = 2;
constexpr int64_t kPrefetchBytes = 16384;  // ahead in packed B

inline void prefetch_group(const char* b, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(b + kPrefetchBytes + line);
}

/// One k per group; packed A holds accumulators, packed B elements of P.
template <class E, class P>
struct WideStep {
  using Element = E;
  using V = typename E::V;
  using Acc = typename E::Acc;
  using PackedA = Acc;
  using PackedB = typename P::Elem;
  static constexpr int kGroup = 1;

  template <int MR>
  static inline __attribute__((always_inline)) void step(V (&acc)[MR][kPanelVectors], const void* a,
                                                         const char* b) {
    const auto* a_values = static_cast<const Acc*>(a);
    const auto* b_values = reinterpret_cast<const PackedB*>(b);
    const V b0 = P::load_wide(b_values);
    const V b1 = P::load_wide(b_values + kLanes<Acc>);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const V x = a_values[r] - V{};
      acc[r][0] += x * b0;
      acc[r][1] += x * b1;
    }
  }
  static PackedA pack_a_group(const typename E::Elem* src, int64_t, int64_t) {
    return E::widen(*src);
  }
  static PackedB pack_b_group(const typename E::Elem* src, int64_t, int64_t) {
    if constexpr (sizeof(PackedB) == sizeof(typename E::Elem)) {
      return *src;
    } else {
      return E::widen(*src);
    }
  }
};

/// Two bf16 of consecutive k in 32 bits; both are widened in registers. Packed A holds two floats a
/// row.
struct Bf16WideStep {
  using Element = Bf16;
  using V = VecF;
  using Acc = float;
  struct PackedA {
    float even, odd;
  };
  using PackedB = uint32_t;
  static constexpr int kGroup = 2;

  template <int MR>
  static inline __attribute__((always_inline)) void step(V (&acc)[MR][kPanelVectors], const void* a,
                                                         const char* b) {
    const auto* a_values = static_cast<const float*>(a);
    const auto* pairs = reinterpret_cast<const VecUu*>(b);
    const VecU p0 = pairs[0], p1 = pairs[1];
    const V even0 = (V)(p0 << 16), even1 = (V)(p1 << 16);
    const V odd0 = (V)(p0 & 0xffff0000u), odd1 = (V)(p1 & 0xffff0000u);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const V x = a_values[2 * r] - V{};
      const V y = a_values[2 * r + 1] - V{};
      acc[r][0] += x * even0;
      acc[r][1] += x * even1;
      acc[r][0] += y * odd0;
      acc[r][1] += y * odd1;
    }
  }
  static PackedA pack_a_group(const uint16_t* src, int64_t k_left, int64_t k_stride) {
    return {bf16_to_float(src[0]), k_left > 1 ? bf16_to_float(src[k_stride]) : 0.0f};
  }
  static PackedB pack_b_group(const uint16_t* src, int64_t k_left, int64_t k_stride) {
    return src[0] | (k_left > 1 ? static_cast<uint32_t>(src[k_stride]) << 16 : 0u);
  }
};

#if defined(__AVX2__)
/// Two int8 of consecutive k multiplied as int16 pairs, which is exact.
struct Int8PairStep {
  using Element = Int8;
  using V = VecI;
  using Acc = int32_t;
  using PackedA = uint32_t;  // two int16
  using PackedB = uint16_t;  // two int8
  static constexpr int kGroup = 2;

  template <int MR>
  static inline __attribute__((always_inline)) void step(V (&acc)[MR][kPanelVectors], const void* a,
                                                         const char* b) {
    const auto* a_values = static_cast<const int32_t*>(a);
#if CUDAEXEC_VECTOR_BYTES == 64
    const auto* raw = reinterpret_cast<const __m256i_u*>(b);
    const __m512i b0 = _mm512_cvtepi8_epi16(raw[0]), b1 = _mm512_cvtepi8_epi16(raw[1]);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const __m512i x = _mm512_set1_epi32(a_values[r]);
      acc[r][0] += (V)_mm512_madd_epi16(x, b0);
      acc[r][1] += (V)_mm512_madd_epi16(x, b1);
    }
#else
    const auto* raw = reinterpret_cast<const __m128i_u*>(b);
    const __m256i b0 = _mm256_cvtepi8_epi16(raw[0]), b1 = _mm256_cvtepi8_epi16(raw[1]);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const __m256i x = _mm256_set1_epi32(a_values[r]);
      acc[r][0] += (V)_mm256_madd_epi16(x, b0);
      acc[r][1] += (V)_mm256_madd_epi16(x, b1);
    }
#endif
  }
  static PackedA pack_a_group(const int8_t* src, int64_t k_left, int64_t k_stride) {
    const auto low = static_cast<uint16_t>(static_cast<int16_t>(src[0]));
    const auto high =
        k_left > 1 ? static_cast<uint16_t>(static_cast<int16_t>(src[k_stride])) : uint16_t{0};
    return low | static_cast<uint32_t>(high) << 16;
  }
  static PackedB pack_b_group(const int8_t* src, int64_t k_left, int64_t k_stride) {
    const auto low = static_cast<uint8_t>(src[0]);
    const auto high = k_left > 1 ? static_cast<uint8_t>(src[k_stride]) : uint8_t{0};
    return static_cast<PackedB>(low | high << 8);
  }
};
#endif

template <class S, int MR>
void compute_tile(int64_t groups, const void* a, const void* b, int64_t b_step,
                  const TileOutput<typename S::Acc>& output) {
  using V = typename S::V;
  using Acc = typename S::Acc;
  constexpr int kPanelBytes =
      static_cast<int>(sizeof(typename S::PackedB)) * kPanelVectors * kLanes<Acc>;
  V acc[MR][kPanelVectors] = {};
  const auto* a_group = static_cast<const char*>(a);
  const auto* b_group = static_cast<const char*>(b);
  for (int64_t g = 0; g < groups; ++g) {
    prefetch_group(b_group, kPanelBytes);
    S::template step<MR>(acc, a_group, b_group);
    a_group += MR * static_cast<int>(sizeof(typename S::PackedA));
    b_group += b_step;
  }
  const V alpha = output.alpha - V{};
  const V beta = output.beta - V{};
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) {
      V value = acc[r][v] * alpha;
      if (output.add != nullptr) {
        value += beta * load(output.add + r * output.add_ld + v * kLanes<Acc>);
      }
      store(output.out + r * output.ld + v * kLanes<Acc>, value);
    }
  }
}

#if defined(__AVX__)
/// dst[j * dst_step + i] = src[i * src_step + j] for i, j < 8, in units of 32 bits.
inline void transpose_8x8(float* dst, int64_t dst_step, const float* src, int64_t src_step) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(src + i * src_step);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(dst + i * dst_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(dst + (i + 4) * dst_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#endif

/// dst[j * dst_step + i] = src[i * src_step + j] for i < rows, j < cols, in units of 32 bits.
inline void transpose_units(float* dst, int64_t dst_step, const float* src, int64_t src_step,
                            int64_t rows, int64_t cols) {
  int64_t j = 0;
#if defined(__AVX__)
  for (; j + 8 <= cols; j += 8) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
      transpose_8x8(dst + j * dst_step + i, dst_step, src + i * src_step + j, src_step);
    }
    for (; i < rows; ++i) {
      for (int64_t c = j; c < j + 8; ++c) {
        std::memcpy(dst + c * dst_step + i, src + i * src_step + c, sizeof(float));
      }
    }
  }
#endif
  for (; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(dst + j * dst_step + i, src + i * src_step + j, sizeof(float));
    }
  }
}

/// Whether a group's packed form is the group's bytes, so that packing moves units of 32 bits.
template <class E, typename Packed, int Group>
constexpr bool kGroupIsUnit =
    sizeof(Packed) == 4 && sizeof(typename E::Elem) * Group == sizeof(Packed);

template <class S>
void pack_a_tile(void* dst, const void* src, int64_t rows, int64_t k, int64_t row_stride,
                 int64_t k_stride) {
  using Elem = typename S::Element::Elem;
  using Packed = typename S::PackedA;
  const auto* in = static_cast<const Elem*>(src);
  auto* out = static_cast<Packed*>(dst);
  int64_t done = 0;
  if constexpr (kGroupIsUnit<typename S::Element, Packed, S::kGroup>) {
    const int64_t whole = k / S::kGroup;
    if (k_stride == 1 && row_stride % S::kGroup == 0) {
      transpose_units(reinterpret_cast<float*>(out), rows, reinterpret_cast<const float*>(in),
                      row_stride / S::kGroup, rows, whole);
      done = whole * S::kGroup;
    }
  }
  for (int64_t i = done; i < k; i += S::kGroup) {
    Packed* group = out + i / S::kGroup * rows;
    for (int64_t r = 0; r < rows; ++r) {
      group[r] = S::pack_a_group(in + r * row_stride + i * k_stride, k - i, k_stride);
    }
  }
}

template <class S>
void pack_b_panel(void* dst, const void* src, int64_t k, int64_t cols, int64_t k_stride,
                  int64_t col_stride) {
  using Elem = typename S::Element::Elem;
  using Packed = typename S::PackedB;
  constexpr int64_t kCols = kPanelVectors * kLanes<typename S::Acc>;
  const auto* in = static_cast<const Elem*>(src);
  auto* out = static_cast<Packed*>(dst);
  int64_t done = 0;
  if constexpr (kGroupIsUnit<typename S::Element, Packed, S::kGroup>) {
    const int64_t whole = k / S::kGroup;
    if (k_stride == 1 && col_stride % S::kGroup == 0) {
      transpose_units(reinterpret_cast<float*>(out), kCols, reinterpret_cast<const float*>(in),
                      col_stride / S::kGroup, cols, whole);
      done = whole * S::kGroup;
    }
  }
  for (int64_t i = done; i < k; i += S::kGroup) {
    Packed* group = out + i / S::kGroup * kCols;
    const Elem* from = in + i * k_stride;
    if (col_stride == 1) {
      for (int64_t c = 0; c < cols; ++c) group[c] = S::pack_b_group(from + c, k - i, k_stride);
    } else {
      for (int64_t c = 0; c < cols; ++c) {
        group[c] = S::pack_b_group(from + c * col_stride, k - i, k_stride);
      }
    }
  }
  if (cols == kCols) return;
  for (int64_t g = 0; g < (k + S::kGroup - 1) / S::kGroup; ++g) {
    for (int64_t c = cols; c < kCols; ++c) out[g * kCols + c] = Packed{};
  }
}

}  // namespace
}  // namespace cudaexec::ops
