// Which kernels this machine can run.
#include <cstring>

#include "ops/gemm.h"

namespace cudaexec::ops {
namespace {

bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

GemmKernelSet make_avx512() noexcept {
  GemmKernelSet set = kGemmAvx512;
  if (__builtin_cpu_supports("avx512bf16")) set.bf16 = kGemmBf16Pairs;
  return set;
}

const GemmKernelSet& avx512_kernels() noexcept {
  static const GemmKernelSet set = make_avx512();
  return set;
}

}  // namespace

const GemmKernelSet& gemm_kernels() noexcept {
  static const GemmKernelSet& best =
      has_avx512() ? avx512_kernels() : (has_avx2() ? kGemmAvx2 : kGemmPortable);
  return best;
}

const GemmKernelSet* find_gemm_kernels(const char* name) noexcept {
  if (std::strcmp(name, kGemmPortable.name) == 0) return &kGemmPortable;
  if (std::strcmp(name, kGemmAvx2.name) == 0 && has_avx2()) return &kGemmAvx2;
  if (std::strcmp(name, kGemmAvx512.name) == 0 && has_avx512()) return &avx512_kernels();
  return nullptr;
}

}  // namespace cudaexec::ops
