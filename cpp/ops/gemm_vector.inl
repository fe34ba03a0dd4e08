// Vectors of CUDAEXEC_VECTOR_BYTES and the element types over them. Included by gemm_tile.inl
// inside a file that is compiled for one instruction set; everything has internal linkage.
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "ops/gemm_half.h"
#include "ops/gemm_kernels.h"

namespace cudaexec::ops {
namespace {

constexpr int kVectorBytes = CUDAEXEC_VECTOR_BYTES;

typedef float VecF __attribute__((vector_size(kVectorBytes)));
typedef float VecFu __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef double VecD __attribute__((vector_size(kVectorBytes)));
typedef double VecDu __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
typedef int32_t VecI __attribute__((vector_size(kVectorBytes)));
typedef int32_t VecIu __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef uint32_t VecU __attribute__((vector_size(kVectorBytes)));
typedef uint32_t VecUu __attribute__((vector_size(kVectorBytes), aligned(2), may_alias));

inline VecF load(const float* p) { return *reinterpret_cast<const VecFu*>(p); }
inline VecD load(const double* p) { return *reinterpret_cast<const VecDu*>(p); }
inline VecI load(const int32_t* p) { return *reinterpret_cast<const VecIu*>(p); }
inline void store(float* p, VecF v) { *reinterpret_cast<VecFu*>(p) = v; }
inline void store(double* p, VecD v) { *reinterpret_cast<VecDu*>(p) = v; }
inline void store(int32_t* p, VecI v) { *reinterpret_cast<VecIu*>(p) = v; }

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type = VecF;
};
template <>
struct VectorOf<double> {
  using type = VecD;
};
template <>
struct VectorOf<int32_t> {
  using type = VecI;
};

template <typename T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

/// Kernels of one element type: `Elem` in memory, `PackedB` in packed B, `Acc` in registers.
/// load_wide() reads kLanes<Acc> elements as accumulators.
template <typename T>
struct Plain {
  using Elem = T;
  using Out = T;
  using Acc = T;
  using V = typename VectorOf<T>::type;
  static Acc widen(Elem x) { return x; }
  static Elem narrow(Acc x) { return x; }
  static V load_wide(const Elem* p) { return load(p); }
};

struct Bf16 {
  using Elem = uint16_t;
  using Out = uint16_t;
  using Acc = float;
  using V = VecF;
  static Acc widen(Elem x) { return bf16_to_float(x); }
  static Elem narrow(Acc x) { return float_to_bf16(x); }
  static V load_wide(const Elem* p) {
#if CUDAEXEC_VECTOR_BYTES == 64
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return (VecF)_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16);
#elif CUDAEXEC_VECTOR_BYTES == 32
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return (VecF)_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16);
#else
    return VecF{widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])};
#endif
  }
};

struct F16 {
  using Elem = uint16_t;
  using Out = uint16_t;
  using Acc = float;
  using V = VecF;
#if CUDAEXEC_VECTOR_BYTES >= 32
  static Acc widen(Elem x) { return _cvtsh_ss(x); }
  static Elem narrow(Acc x) { return static_cast<Elem>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
#else
  static Acc widen(Elem x) { return f16_to_float(x); }
  static Elem narrow(Acc x) { return float_to_f16(x); }
#endif
  static V load_wide(const Elem* p) {
#if CUDAEXEC_VECTOR_BYTES == 64
    return (VecF)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif CUDAEXEC_VECTOR_BYTES == 32
    return (VecF)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    return VecF{widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])};
#endif
  }
};

/// int8 operands, int32 accumulator and result.
struct Int8 {
  using Elem = int8_t;
  using Out = int32_t;
  using Acc = int32_t;
  using V = VecI;
  static Acc widen(Elem x) { return x; }
  static Acc widen(Out x) { return x; }
  static Out narrow(Acc x) { return x; }
  static V load_wide(const Elem* p) {
    V v;
    for (int i = 0; i < kLanes<int32_t>; ++i) v[i] = p[i];
    return v;
  }
};

}  // namespace
}  // namespace cudaexec::ops
