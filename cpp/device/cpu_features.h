// What the CPU and the operating system let programs use: x86-64 levels and single features.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"

namespace cudaexec {

/// A set of feature names. Plain data, so that tests can describe any machine.
class CUDAEXEC_API CpuFeatures {
 public:
  /// `names`: as in /proc/cpuinfo or in g++'s -m options; case, '_', '-' and '.' do not matter.
  explicit CpuFeatures(const std::vector<std::string>& names);
  /// This machine: what cpuid reports and the operating system saves on a context switch.
  static const CpuFeatures& host();

  [[nodiscard]] bool has(std::string_view name) const;
  /// Whether this version can tell if a machine has the feature.
  static bool is_known(std::string_view name);
  /// Whether code marked with `level` ("x86-64", "x86-64-v2" to "-v4") runs: the first feature that
  /// is missing, or "" if none is. An unknown level is missing itself.
  [[nodiscard]] std::string missing_for_level(std::string_view level) const;
  /// The highest level that runs.
  [[nodiscard]] std::string level() const;
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;  // normalised, sorted
};

}  // namespace cudaexec
