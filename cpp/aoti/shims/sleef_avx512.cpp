// Sleef_* for code compiled for x86-64-v4; see sleef_avx2.cpp.
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

// GCC's own AVX-512 intrinsics leave merged-over registers undefined on purpose and warn about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")

using VecF = __m512;
using VecD = __m512d;
using VecI32 = int32_t __attribute__((vector_size(64)));
using VecI64 = int64_t __attribute__((vector_size(64)));

#define SLEEF_F f16
#define SLEEF_D d8
#define SLEEF_MVEC_F _ZGVeN16
#define SLEEF_MVEC_D _ZGVeN8
#define SLEEF_TRUNC_D(x) _mm512_roundscale_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
#define SLEEF_FNMADD_D(a, b, c) _mm512_fnmadd_pd(a, b, c)
#define SLEEF_LOW_D(x) _mm512_cvtps_pd(_mm512_castps512_ps256(x))
#define SLEEF_HIGH_D(x) _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))
#define SLEEF_JOIN_D(low, high) \
  _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1)

#include "aoti/shims/sleef_bodies.h"
