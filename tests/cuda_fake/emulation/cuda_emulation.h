// Just enough of CUDA C++ for the files of cuda/ to be compiled by g++ and run on the CPU: a block
// at a time, its threads as fibers that take turns at __syncthreads() and where a warp exchanges
// registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

namespace emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
/// Of the thread that runs.
struct Position {
  Index thread, block, block_size, grid_size;
};
extern Position position;

using Body = void (*)(const void* arguments);
struct Registration {
  Registration(const char* name, size_t nbytes, Body body);
};

/// Ends the thread that calls it, as a failed assertion ends a kernel.
[[noreturn]] void trap();

/// Lets the other threads of the block come to the same place.
void wait_for_block();

/// Where the threads of the running thread's warp leave `nbytes` each for one another: the place of
/// lane 0. Returns once all that have not ended have put theirs there.
const void* exchange_bytes(const void* mine, size_t nbytes);
/// What every lane of the warp gave, by lane; valid until the next exchange but one.
template <typename T>
const T* exchange(const T& mine) {
  return static_cast<const T*>(exchange_bytes(&mine, sizeof(T)));
}

}  // namespace emulation

#define threadIdx ::emulation::position.thread
#define blockIdx ::emulation::position.block
#define blockDim ::emulation::position.block_size
#define gridDim ::emulation::position.grid_size

inline void __syncthreads() { emulation::wait_for_block(); }
inline void __syncwarp() { (void)emulation::exchange(0); }
inline void __threadfence_system() {}
[[noreturn]] inline void __trap() { emulation::trap(); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}

// Threads never run at the same time: plain memory accesses are atomic.
template <typename T>
T atomicAdd(T* target, T value) {
  const T old = *target;
  *target = old + value;
  return old;
}
template <typename T>
T atomicMin(T* target, T value) {
  const T old = *target;
  if (value < old) *target = value;
  return old;
}
template <typename T>
T atomicMax(T* target, T value) {
  const T old = *target;
  if (value > old) *target = value;
  return old;
}
template <typename T>
T atomicOr(T* target, T value) {
  const T old = *target;
  *target = old | value;
  return old;
}
template <typename T>
T atomicCAS(T* target, T expected, T value) {
  const T old = *target;
  if (old == expected) *target = value;
  return old;
}

#define CUDAEXEC_KERNEL(name, Args, threads)                                      \
  static void name(const Args& a);                                                \
  static const ::emulation::Registration name##_registration(                     \
      #name, sizeof(Args),                                                        \
      [](const void* arguments) { name(*static_cast<const Args*>(arguments)); }); \
  static void name(const Args& a)
