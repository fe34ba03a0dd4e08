// How a kernel is defined: it takes one struct `a` by value, of a type that both compilers know.
// Compiled by g++ with CUDAEXEC_EMULATION (tests/cuda_fake/emulation) the same text runs on the
// CPU, over the fake driver.
#pragma once

#if defined(CUDAEXEC_EMULATION)
#include "emulation/cuda_emulation.h"
#else
#define CUDAEXEC_KERNEL(name, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a)
#endif
