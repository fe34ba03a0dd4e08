// The names of Sleef that torch's CPU vector headers use (the same set for each level, torch 2.11
// to 2.15), by kind, as lists for macros. X(name, suffix): Sleef_<name><level><suffix>.
#pragma once

// One operand; glibc has the vector function.
#define SLEEF_UNARY_NAMES(X) \
  X(acos, _u10)              \
  X(acosh, _u10)             \
  X(asin, _u10)              \
  X(asinh, _u10)             \
  X(atan, _u10)              \
  X(atanh, _u10)             \
  X(cos, _u10)               \
  X(cosh, _u10)              \
  X(erf, _u10)               \
  X(erfc, _u15)              \
  X(exp, _u10)               \
  X(exp2, _u10)              \
  X(expm1, _u10)             \
  X(log, _u10)               \
  X(log10, _u10)             \
  X(log1p, _u10)             \
  X(log2, _u10)              \
  X(sin, _u10)               \
  X(sinh, _u10)              \
  X(tan, _u10)               \
  X(tanh, _u10)

// Two operands; glibc has the vector function.
#define SLEEF_BINARY_NAMES(X) \
  X(atan2, _u10)              \
  X(hypot, _u05)              \
  X(pow, _u10)

// Two operands; exact, our own code.
#define SLEEF_EXACT_NAMES(X) \
  X(copysign, )              \
  X(nextafter, )             \
  X(fmod, )

// float only.
#define SLEEF_FLOAT_NAMES(X) \
  X(sin, _u35)               \
  X(cos, _u35)

// Besides these: lgamma_u10 and sincos_u10.

#define SLEEF_JOIN3_(a, b, c) a##b##c
#define SLEEF_JOIN3(a, b, c) SLEEF_JOIN3_(a, b, c)
#define SLEEF_NAME(name, level, suffix) SLEEF_JOIN3(Sleef_##name, level, suffix)
