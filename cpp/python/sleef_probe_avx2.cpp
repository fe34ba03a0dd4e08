// Test surface for the Sleef_* functions of x86-64-v3; see sleef_probe.h.
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC target("avx2,fma")

using VecF = __m256;
using VecD = __m256d;

#define SLEEF_F f8
#define SLEEF_D d4
#define PROBE_FLOATS sleef_floats_avx2
#define PROBE_DOUBLES sleef_doubles_avx2

#include "python/sleef_probe.h"
