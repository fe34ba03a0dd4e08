// Which of a method's code variants this machine runs, and why not the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/export.h"
#include "format/manifest.h"
#include "device/cpu_features.h"

namespace cudaexec {

struct VariantChoice {
  std::optional<size_t> chosen;      // index into the variants
  std::vector<std::string> reasons;  // one per variant; empty for the chosen one
};

/// The first variant (the file lists the best first) that `features` can run. `forced_isa` (may be
/// empty) admits only variants of that level.
CUDAEXEC_API VariantChoice choose_cpu_variant(const std::vector<CodeVariant>& variants,
                                              const CpuFeatures& features,
                                              const std::string& forced_isa);

/// "x86-64-v3 (needs avx2, which this CPU lacks); cuda sm_90 (...)" for messages.
CUDAEXEC_API std::string describe_choice(const std::vector<CodeVariant>& variants,
                                         const VariantChoice& choice);

/// "cpu x86-64-v3" or "cuda sm_90".
CUDAEXEC_API std::string describe_variant(const CodeVariant& variant);

}  // namespace cudaexec
