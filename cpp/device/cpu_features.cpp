#include "device/cpu_features.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <utility>

namespace cudaexec {
namespace {

enum Register : uint8_t { kEax, kEbx, kEcx, kEdx };
enum class Saved : uint8_t { kSse, kYmm, kZmm, kTile };  // register state the system must save

struct Feature {
  const char* name;  // normalised
  uint32_t leaf, subleaf;
  Register reg;
  unsigned bit;
  Saved saved;
};

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
constexpr Feature kFeatures[] = {
    {"sse3", 1, 0, kEcx, 0, Saved::kSse},
    {"pclmul", 1, 0, kEcx, 1, Saved::kSse},
    {"ssse3", 1, 0, kEcx, 9, Saved::kSse},
    {"fma", 1, 0, kEcx, 12, Saved::kYmm},
    {"cx16", 1, 0, kEcx, 13, Saved::kSse},
    {"sse41", 1, 0, kEcx, 19, Saved::kSse},
    {"sse42", 1, 0, kEcx, 20, Saved::kSse},
    {"movbe", 1, 0, kEcx, 22, Saved::kSse},
    {"popcnt", 1, 0, kEcx, 23, Saved::kSse},
    {"aes", 1, 0, kEcx, 25, Saved::kSse},
    {"xsave", 1, 0, kEcx, 26, Saved::kSse},
    {"osxsave", 1, 0, kEcx, 27, Saved::kSse},
    {"avx", 1, 0, kEcx, 28, Saved::kYmm},
    {"f16c", 1, 0, kEcx, 29, Saved::kYmm},
    {"rdrnd", 1, 0, kEcx, 30, Saved::kSse},
    {"fsgsbase", 7, 0, kEbx, 0, Saved::kSse},
    {"bmi1", 7, 0, kEbx, 3, Saved::kSse},
    {"avx2", 7, 0, kEbx, 5, Saved::kYmm},
    {"bmi2", 7, 0, kEbx, 8, Saved::kSse},
    {"avx512f", 7, 0, kEbx, 16, Saved::kZmm},
    {"avx512dq", 7, 0, kEbx, 17, Saved::kZmm},
    {"rdseed", 7, 0, kEbx, 18, Saved::kSse},
    {"adx", 7, 0, kEbx, 19, Saved::kSse},
    {"avx512ifma", 7, 0, kEbx, 21, Saved::kZmm},
    {"avx512cd", 7, 0, kEbx, 28, Saved::kZmm},
    {"sha", 7, 0, kEbx, 29, Saved::kSse},
    {"avx512bw", 7, 0, kEbx, 30, Saved::kZmm},
    {"avx512vl", 7, 0, kEbx, 31, Saved::kZmm},
    {"avx512vbmi", 7, 0, kEcx, 1, Saved::kZmm},
    {"avx512vbmi2", 7, 0, kEcx, 6, Saved::kZmm},
    {"gfni", 7, 0, kEcx, 8, Saved::kSse},
    {"vaes", 7, 0, kEcx, 9, Saved::kYmm},
    {"vpclmulqdq", 7, 0, kEcx, 10, Saved::kYmm},
    {"avx512vnni", 7, 0, kEcx, 11, Saved::kZmm},
    {"avx512bitalg", 7, 0, kEcx, 12, Saved::kZmm},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, Saved::kZmm},
    {"amxbf16", 7, 0, kEdx, 22, Saved::kTile},
    {"avx512fp16", 7, 0, kEdx, 23, Saved::kZmm},
    {"amxtile", 7, 0, kEdx, 24, Saved::kTile},
    {"amxint8", 7, 0, kEdx, 25, Saved::kTile},
    {"avxvnni", 7, 1, kEax, 4, Saved::kYmm},
    {"avx512bf16", 7, 1, kEax, 5, Saved::kZmm},
    {"amxfp16", 7, 1, kEax, 21, Saved::kTile},
    {"lahflm", 0x80000001, 0, kEcx, 0, Saved::kSse},
    {"lzcnt", 0x80000001, 0, kEcx, 5, Saved::kSse},
};

constexpr const char* kLevel2[] = {"cx16", "lahflm", "popcnt", "sse3", "sse41", "sse42", "ssse3"};
constexpr const char* kLevel3[] = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe"};
constexpr const char* kLevel4[] = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};

// Other spellings of the names above, normalised.
constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"abm", "lzcnt"},   {"pni", "sse3"},  {"bmi", "bmi1"},     {"pclmulqdq", "pclmul"},
    {"sahf", "lahflm"}, {"shani", "sha"}, {"rdrand", "rdrnd"},
};

std::string normalised(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != '.') {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const auto& [other, ours] : kSynonyms) {
    if (text == other) return ours;
  }
  return text;
}

/// XCR0: which register state the operating system saves; 0 if it does not say.
uint64_t saved_state() noexcept {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kOsxsave = 1u << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool is_saved(Saved what, uint64_t xcr0) noexcept {
  constexpr uint64_t kSse = 0x2, kYmm = 0x6, kZmm = 0xe6, kTile = 0x60000;
  switch (what) {
    case Saved::kSse:
      return true;  // every x86-64 system saves it
    case Saved::kYmm:
      return (xcr0 & kYmm) == kYmm;
    case Saved::kZmm:
      return (xcr0 & kZmm) == kZmm;
    case Saved::kTile:
      return (xcr0 & (kTile | kSse)) == (kTile | kSse);
  }
  return false;
}

std::vector<std::string> host_names() {
  std::vector<std::string> names;
  const uint64_t xcr0 = saved_state();
  for (const Feature& feature : kFeatures) {
    std::array<uint32_t, 4> regs{};
    if (__get_cpuid_count(feature.leaf, feature.subleaf, &regs[kEax], &regs[kEbx], &regs[kEcx],
                          &regs[kEdx]) == 0) {
      continue;
    }
    if (((regs[feature.reg] >> feature.bit) & 1) != 0 && is_saved(feature.saved, xcr0)) {
      names.emplace_back(feature.name);
    }
  }
  return names;
}

}  // namespace

CpuFeatures::CpuFeatures(const std::vector<std::string>& names) {
  for (const std::string& name : names) names_.push_back(normalised(name));
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

const CpuFeatures& CpuFeatures::host() {
  static const CpuFeatures features(host_names());
  return features;
}

bool CpuFeatures::has(std::string_view name) const {
  const std::string wanted = normalised(name);
  // Part of the x86-64 baseline.
  if (wanted == "sse" || wanted == "sse2" || wanted == "mmx" || wanted == "fxsr") return true;
  return std::binary_search(names_.begin(), names_.end(), wanted);
}

bool CpuFeatures::is_known(std::string_view name) {
  const std::string wanted = normalised(name);
  return std::any_of(std::begin(kFeatures), std::end(kFeatures),
                     [&wanted](const Feature& feature) { return wanted == feature.name; });
}

std::string CpuFeatures::missing_for_level(std::string_view level) const {
  int number = 0;
  if (level == "x86-64") number = 1;
  for (const int candidate : {2, 3, 4}) {
    if (level == "x86-64-v" + std::to_string(candidate)) number = candidate;
  }
  if (number == 0) return std::string(level);
  const auto first_missing = [this](const auto& names) -> std::string {
    for (const char* name : names) {
      if (!has(name)) return name;
    }
    return {};
  };
  std::string missing;
  if (number >= 2) missing = first_missing(kLevel2);
  if (missing.empty() && number >= 3) missing = first_missing(kLevel3);
  if (missing.empty() && number >= 4) missing = first_missing(kLevel4);
  return missing;
}

std::string CpuFeatures::level() const {
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    if (missing_for_level(level).empty()) return level;
  }
  return "x86-64";
}

}  // namespace cudaexec
