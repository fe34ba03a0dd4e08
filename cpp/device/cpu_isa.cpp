#include "device/cpu_isa.h"

#include <cpuid.h>

#include <cstdint>

namespace cudaexec {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf) noexcept {
  Registers r;
  if (__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool all(uint32_t value, uint32_t bits) noexcept { return (value & bits) == bits; }

// Register states that the operating system saves (XCR0); 0 without OSXSAVE.
uint64_t saved_states(const Registers& leaf1) noexcept {
  if ((leaf1.ecx & bit_OSXSAVE) == 0) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

int detect() noexcept {
  const Registers basic = cpuid(1);
  const Registers extended = cpuid(7);
  const Registers amd = cpuid(0x80000001u);
  const uint64_t states = saved_states(basic);
  constexpr uint32_t kV2 =
      bit_CMPXCHG16B | bit_POPCNT | bit_SSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_SSSE3;
  if (!all(basic.ecx, kV2) || !all(amd.ecx, bit_LAHF_LM)) return 1;
  constexpr uint64_t kYmm = 0x6;  // SSE and AVX state
  if (!all(basic.ecx, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE) ||
      !all(extended.ebx, bit_AVX2 | bit_BMI | bit_BMI2) || !all(amd.ecx, bit_LZCNT) ||
      (states & kYmm) != kYmm) {
    return 2;
  }
  constexpr uint64_t kZmm = 0xe6;  // and opmask and ZMM state
  if (!all(extended.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL) ||
      (states & kZmm) != kZmm) {
    return 3;
  }
  return 4;
}

}  // namespace

int cpu_isa_level() noexcept {
  static const int level = detect();
  return level;
}

}  // namespace cudaexec
