// Test surface for the Sleef_* functions of x86-64-v4; see sleef_probe.h.
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")

using VecF = __m512;
using VecD = __m512d;

#define SLEEF_F f16
#define SLEEF_D d8
#define PROBE_FLOATS sleef_floats_avx512
#define PROBE_DOUBLES sleef_doubles_avx512

#include "python/sleef_probe.h"
