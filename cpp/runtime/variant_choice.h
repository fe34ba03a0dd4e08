// Which of a method's code variants this machine runs, and why not the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/export.h"
#include "device/cpu_features.h"
#include "format/manifest.h"

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

/// The code for GPUs of `sm` (90 for 9.0): exactly that architecture, else the newest PTX that is
/// not above it, which the driver compiles, else code for no particular GPU.
CUDAEXEC_API VariantChoice choose_cuda_variant(const std::vector<CodeVariant>& variants, int sm);

/// "x86-64-v3 (needs avx2, which this CPU lacks); cuda sm_90 (...)" for messages.
CUDAEXEC_API std::string describe_choice(const std::vector<CodeVariant>& variants,
                                         const VariantChoice& choice);

/// "cpu x86-64-v3", "cuda sm_90", "cuda sm_80 with PTX for compute_80" or "cuda PTX for
/// compute_80".
CUDAEXEC_API std::string describe_variant(const CodeVariant& variant);

}  // namespace cudaexec
