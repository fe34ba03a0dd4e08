// The Sleef_* functions of one vector level, as the vector code of generated programs calls them.
// A source defines the level (see sleef_avx2.cpp) and includes this file once. Most bodies are
// glibc's vector functions; docs/accuracy.md has the errors. No guard: the file is text for two
// levels.

#include "aoti/shims/sleef_names.h"
#include "base/export.h"

#define SLEEF_API extern "C" CUDAEXEC_API
// glibc's name, e.g. LIBMVEC_F(v_, exp) for expf.
#define LIBMVEC_F(arguments, name) SLEEF_JOIN3(SLEEF_MVEC_F, arguments, name##f)
#define LIBMVEC_D(arguments, name) SLEEF_JOIN3(SLEEF_MVEC_D, arguments, name)

#define SLEEF_UNARY(name, suffix)                                                             \
  extern "C" VecF LIBMVEC_F(v_, name)(VecF);                                                  \
  extern "C" VecD LIBMVEC_D(v_, name)(VecD);                                                  \
  SLEEF_API VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x) { return LIBMVEC_F(v_, name)(x); } \
  SLEEF_API VecD SLEEF_NAME(name, SLEEF_D, suffix)(VecD x) { return LIBMVEC_D(v_, name)(x); }

#define SLEEF_BINARY(name, suffix)                                   \
  extern "C" VecF LIBMVEC_F(vv_, name)(VecF, VecF);                  \
  extern "C" VecD LIBMVEC_D(vv_, name)(VecD, VecD);                  \
  SLEEF_API VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x, VecF y) { \
    return LIBMVEC_F(vv_, name)(x, y);                               \
  }                                                                  \
  SLEEF_API VecD SLEEF_NAME(name, SLEEF_D, suffix)(VecD x, VecD y) { \
    return LIBMVEC_D(vv_, name)(x, y);                               \
  }

SLEEF_UNARY_NAMES(SLEEF_UNARY)
SLEEF_BINARY_NAMES(SLEEF_BINARY)

// Sleef's faster, less exact variants.
#define SLEEF_FLOAT(name, suffix) \
  SLEEF_API VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x) { return LIBMVEC_F(v_, name)(x); }
SLEEF_FLOAT_NAMES(SLEEF_FLOAT)

// Returned in memory; one type per level, since both levels are linked together.
#define SincosF SLEEF_JOIN3(SleefPair, SLEEF_F, )
#define SincosD SLEEF_JOIN3(SleefPair, SLEEF_D, )
struct SincosF {
  VecF x, y;
};
struct SincosD {
  VecD x, y;
};
SLEEF_API SincosF SLEEF_NAME(sincos, SLEEF_F, _u10)(VecF x) {
  return {LIBMVEC_F(v_, sin)(x), LIBMVEC_F(v_, cos)(x)};
}
SLEEF_API SincosD SLEEF_NAME(sincos, SLEEF_D, _u10)(VecD x) {
  return {LIBMVEC_D(v_, sin)(x), LIBMVEC_D(v_, cos)(x)};
}

namespace {

// The magnitude bits of a lane.
constexpr int32_t kMagnitudeF = 0x7fffffff;
constexpr int64_t kMagnitudeD = 0x7fffffffffffffff;

inline VecF copysign_of(VecF x, VecF y) {
  return (VecF)(((VecI32)x & kMagnitudeF) | ((VecI32)y & ~kMagnitudeF));
}
inline VecD copysign_of(VecD x, VecD y) {
  return (VecD)(((VecI64)x & kMagnitudeD) | ((VecI64)y & ~kMagnitudeD));
}
inline VecF magnitude_of(VecF x) { return (VecF)((VecI32)x & kMagnitudeF); }
inline VecD magnitude_of(VecD x) { return (VecD)((VecI64)x & kMagnitudeD); }

// Neighbouring floats have neighbouring bit patterns, so a step away from zero adds one to the
// bits.
template <typename Bits, typename Vec>
inline Vec step_towards(Vec x, Vec y) {
  const Bits grows = ~((x < y) ^ (x > 0));  // all ones where |x| grows
  const Bits stepped = (Bits)x + (grows & 2) - 1;
  const Vec smallest = copysign_of((Vec)(Bits{} + 1), y);
  Vec result = x == 0 ? smallest : (Vec)stepped;
  result = x == y ? y : result;
  return x != x || y != y ? x + y : result;
}

inline VecF nextafter_of(VecF x, VecF y) { return step_towards<VecI32>(x, y); }
inline VecD nextafter_of(VecD x, VecD y) { return step_towards<VecI64>(x, y); }

// Exact: below 2^53 the rounded quotient is at most one too large, and the remainder, for that
// quotient too, is a double. Lanes that need more steps go to libm.
inline VecD fmod_of(VecD x, VecD y) {
  constexpr int kLanes = sizeof(VecD) / sizeof(double);
  const VecD dividend = magnitude_of(x);
  const VecD divisor = magnitude_of(y);
  const VecD quotient = SLEEF_TRUNC_D(dividend / divisor);
  const VecI64 simple = (quotient < 0x1p53) & (divisor < __builtin_inf());
  VecD rest = SLEEF_FNMADD_D(quotient, divisor, dividend);
  rest = rest < 0 ? rest + divisor : rest;
  rest = copysign_of(rest, x);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (simple[lane] == 0) rest[lane] = __builtin_fmod(x[lane], y[lane]);
  }
  return rest;
}

inline VecF fmod_of(VecF x, VecF y) {
  const VecD low = fmod_of(SLEEF_LOW_D(x), SLEEF_LOW_D(y));
  const VecD high = fmod_of(SLEEF_HIGH_D(x), SLEEF_HIGH_D(y));
  return SLEEF_JOIN_D(low, high);
}

}  // namespace

#define SLEEF_EXACT(name, suffix)                                                              \
  SLEEF_API VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x, VecF y) { return name##_of(x, y); } \
  SLEEF_API VecD SLEEF_NAME(name, SLEEF_D, suffix)(VecD x, VecD y) { return name##_of(x, y); }
SLEEF_EXACT_NAMES(SLEEF_EXACT)

// libm's lgamma_r, lane by lane: lgamma itself writes a global, and lgammaf_r errs by over 4 ULP.
SLEEF_API VecF SLEEF_NAME(lgamma, SLEEF_F, _u10)(VecF x) {
  int sign = 0;
  for (size_t lane = 0; lane < sizeof(VecF) / sizeof(float); ++lane) {
    x[lane] = (float)lgamma_r(x[lane], &sign);
  }
  return x;
}
SLEEF_API VecD SLEEF_NAME(lgamma, SLEEF_D, _u10)(VecD x) {
  int sign = 0;
  for (size_t lane = 0; lane < sizeof(VecD) / sizeof(double); ++lane) {
    x[lane] = lgamma_r(x[lane], &sign);
  }
  return x;
}
