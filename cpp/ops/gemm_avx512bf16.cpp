// The bf16 matrix product kernel for machines that multiply bf16 pairs (AVX512_BF16).
#define CUDAEXEC_VECTOR_BYTES 64
#define CUDAEXEC_TILE_ROWS 14
#include "ops/gemm_kernel_table.inl"

namespace cudaexec::ops {
namespace {

/// Two bf16 of consecutive k in 32 bits in both packed operands.
struct Bf16DotStep {
  using Element = Bf16;
  using V = VecF;
  using Acc = float;
  using PackedA = uint32_t;
  using PackedB = uint32_t;
  static constexpr int kGroup = 2;

  template <int MR>
  static inline __attribute__((always_inline)) void step(V (&acc)[MR][kPanelVectors], const void* a,
                                                         const char* b) {
    const auto* a_values = static_cast<const int32_t*>(a);
    const auto* pairs = reinterpret_cast<const VecUu*>(b);
    const VecU b0 = pairs[0], b1 = pairs[1];
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const __m512i x = _mm512_set1_epi32(a_values[r]);
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], (__m512bh)x, (__m512bh)b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], (__m512bh)x, (__m512bh)b1);
    }
  }
  static PackedA pack_a_group(const uint16_t* src, int64_t k_left, int64_t k_stride) {
    return src[0] | (k_left > 1 ? static_cast<uint32_t>(src[k_stride]) << 16 : 0u);
  }
  static PackedB pack_b_group(const uint16_t* src, int64_t k_left, int64_t k_stride) {
    return pack_a_group(src, k_left, k_stride);
  }
};

}  // namespace

const GemmKernel<float> kGemmBf16Pairs = make_kernel<Bf16DotStep>();

}  // namespace cudaexec::ops
