// Test surface: calls the Sleef_* functions of the library on arrays. Text for one vector level, as
// aoti/shims/sleef_bodies.h.

#include "aoti/shims/sleef_names.h"

// Returned in memory; one type per level, since both levels are linked together.
#define SincosF SLEEF_JOIN3(SleefPair, SLEEF_F, )
#define SincosD SLEEF_JOIN3(SleefPair, SLEEF_D, )
struct SincosF {
  VecF x, y;
};
struct SincosD {
  VecD x, y;
};

#define PROBE_DECLARE(name, suffix)                          \
  extern "C" VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x); \
  extern "C" VecD SLEEF_NAME(name, SLEEF_D, suffix)(VecD x);
#define PROBE_DECLARE2(name, suffix)                                 \
  extern "C" VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x, VecF y); \
  extern "C" VecD SLEEF_NAME(name, SLEEF_D, suffix)(VecD x, VecD y);
#define PROBE_DECLARE_F(name, suffix) extern "C" VecF SLEEF_NAME(name, SLEEF_F, suffix)(VecF x);
SLEEF_UNARY_NAMES(PROBE_DECLARE)
PROBE_DECLARE(lgamma, _u10)
SLEEF_BINARY_NAMES(PROBE_DECLARE2)
SLEEF_EXACT_NAMES(PROBE_DECLARE2)
SLEEF_FLOAT_NAMES(PROBE_DECLARE_F)
extern "C" SincosF SLEEF_NAME(sincos, SLEEF_F, _u10)(VecF x);
extern "C" SincosD SLEEF_NAME(sincos, SLEEF_D, _u10)(VecD x);

namespace {

VecF sincos_x(VecF v) { return SLEEF_NAME(sincos, SLEEF_F, _u10)(v).x; }
VecF sincos_y(VecF v) { return SLEEF_NAME(sincos, SLEEF_F, _u10)(v).y; }
VecD sincos_x(VecD v) { return SLEEF_NAME(sincos, SLEEF_D, _u10)(v).x; }
VecD sincos_y(VecD v) { return SLEEF_NAME(sincos, SLEEF_D, _u10)(v).y; }

// Functions, not lambdas: the code behind a lambda's conversion does not obey the target pragma.
struct ProbeF {
  using Vec = VecF;
  VecF (*unary)(VecF);
  VecF (*binary)(VecF, VecF);
};
struct ProbeD {
  using Vec = VecD;
  VecD (*unary)(VecD);
  VecD (*binary)(VecD, VecD);
};

// Calls on whole vectors; the tail is padded with ones.
template <typename Probe, typename T>
bool apply(Probe probe, const T* x, const T* y, T* out, size_t count) {
  if (probe.unary == nullptr && (probe.binary == nullptr || y == nullptr)) return false;
  using Vec = typename Probe::Vec;
  constexpr size_t kLanes = sizeof(Vec) / sizeof(T);
  for (size_t at = 0; at < count; at += kLanes) {
    const size_t lanes = count - at < kLanes ? count - at : kLanes;
    Vec vx = Vec{} + 1;
    Vec vy = Vec{} + 1;
    __builtin_memcpy(&vx, x + at, lanes * sizeof(T));
    if (y != nullptr) __builtin_memcpy(&vy, y + at, lanes * sizeof(T));
    const Vec result = probe.unary != nullptr ? probe.unary(vx) : probe.binary(vx, vy);
    __builtin_memcpy(out + at, &result, lanes * sizeof(T));
  }
  return true;
}

#define PROBE_CASE(name, suffix, unary, binary) \
  if (__builtin_strcmp(wanted, #name #suffix) == 0) return {unary, binary};
#define PROBE_UNARY_F(name, suffix) \
  PROBE_CASE(name, suffix, SLEEF_NAME(name, SLEEF_F, suffix), nullptr)
#define PROBE_UNARY_D(name, suffix) \
  PROBE_CASE(name, suffix, SLEEF_NAME(name, SLEEF_D, suffix), nullptr)
#define PROBE_BINARY_F(name, suffix) \
  PROBE_CASE(name, suffix, nullptr, SLEEF_NAME(name, SLEEF_F, suffix))
#define PROBE_BINARY_D(name, suffix) \
  PROBE_CASE(name, suffix, nullptr, SLEEF_NAME(name, SLEEF_D, suffix))

ProbeF find_float(const char* wanted) {
  SLEEF_UNARY_NAMES(PROBE_UNARY_F)
  SLEEF_FLOAT_NAMES(PROBE_UNARY_F)
  SLEEF_BINARY_NAMES(PROBE_BINARY_F)
  SLEEF_EXACT_NAMES(PROBE_BINARY_F)
  PROBE_UNARY_F(lgamma, _u10)
  PROBE_CASE(sincos, _u10.x, sincos_x, nullptr)
  PROBE_CASE(sincos, _u10.y, sincos_y, nullptr)
  return {nullptr, nullptr};
}

ProbeD find_double(const char* wanted) {
  SLEEF_UNARY_NAMES(PROBE_UNARY_D)
  SLEEF_BINARY_NAMES(PROBE_BINARY_D)
  SLEEF_EXACT_NAMES(PROBE_BINARY_D)
  PROBE_UNARY_D(lgamma, _u10)
  PROBE_CASE(sincos, _u10.x, sincos_x, nullptr)
  PROBE_CASE(sincos, _u10.y, sincos_y, nullptr)
  return {nullptr, nullptr};
}

}  // namespace

// False for a name that does not exist or lacks an operand.
bool PROBE_FLOATS(const char* name, const float* x, const float* y, float* out, size_t count) {
  return apply(find_float(name), x, y, out, count);
}
bool PROBE_DOUBLES(const char* name, const double* x, const double* y, double* out, size_t count) {
  return apply(find_double(name), x, y, out, count);
}
