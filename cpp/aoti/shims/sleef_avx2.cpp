// Sleef_* for code compiled for x86-64-v3. Only generated code calls them, so the rest of the
// library still runs on older processors; no header may bring inline functions behind the target
// pragma.
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC target("avx2,fma")

using VecF = __m256;
using VecD = __m256d;
using VecI32 = int32_t __attribute__((vector_size(32)));
using VecI64 = int64_t __attribute__((vector_size(32)));

#define SLEEF_F f8
#define SLEEF_D d4
#define SLEEF_MVEC_F _ZGVdN8
#define SLEEF_MVEC_D _ZGVdN4
#define SLEEF_TRUNC_D(x) _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
#define SLEEF_FNMADD_D(a, b, c) _mm256_fnmadd_pd(a, b, c)
#define SLEEF_LOW_D(x) _mm256_cvtps_pd(_mm256_castps256_ps128(x))
#define SLEEF_HIGH_D(x) _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))
#define SLEEF_JOIN_D(low, high) _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low))

#include "aoti/shims/sleef_bodies.h"
