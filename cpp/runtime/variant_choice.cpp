#include "runtime/variant_choice.h"

#include "base/str.h"

namespace cudaexec {
namespace {

/// Why `variant` cannot be used, or "".
std::string reason_against(const CodeVariant& variant, const CpuFeatures& features,
                           const std::string& forced_isa) {
  if (variant.target != "cpu") return "is not CPU code";
  if (!forced_isa.empty() && variant.isa != forced_isa) {
    return str("isa=\"", forced_isa, "\" was asked for");
  }
  if (!variant.isa.empty()) {
    const std::string missing = features.missing_for_level(variant.isa);
    if (missing == variant.isa) return "is of an instruction-set level unknown to this version";
    if (!missing.empty()) return str("needs ", missing, ", which this CPU lacks");
  }
  for (const std::string& flag : variant.cpu_flags) {
    if (features.has(flag)) continue;
    return str("needs ", flag,
               CpuFeatures::is_known(flag) ? ", which this CPU lacks"
                                           : ", a CPU feature unknown to this version");
  }
  return {};
}

}  // namespace

VariantChoice choose_cpu_variant(const std::vector<CodeVariant>& variants,
                                 const CpuFeatures& features, const std::string& forced_isa) {
  VariantChoice choice;
  for (size_t i = 0; i < variants.size(); ++i) {
    std::string reason = reason_against(variants[i], features, forced_isa);
    if (reason.empty() && choice.chosen) {
      reason = str("would run, but ", describe_variant(variants[*choice.chosen]), " is preferred");
    } else if (reason.empty()) {
      choice.chosen = i;
    }
    choice.reasons.push_back(std::move(reason));
  }
  return choice;
}

VariantChoice choose_cuda_variant(const std::vector<CodeVariant>& variants, int sm) {
  constexpr int kUnfit = -1, kAny = 0, kExact = 1 << 20;  // between: PTX of that version
  const auto rank = [sm](const CodeVariant& variant) {
    if (variant.target != "cuda") return kUnfit;
    if (variant.sm == sm && !variant.fallback_only) return kExact - (variant.ptx != 0 ? 1 : 0);
    if (variant.ptx > 0 && variant.ptx <= sm) return static_cast<int>(variant.ptx);
    return variant.sm == 0 ? kAny : kUnfit;
  };
  VariantChoice choice;
  int best = kUnfit;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (const int fit = rank(variants[i]); fit > best) {
      best = fit;
      choice.chosen = i;
    }
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    std::string reason;
    if (variants[i].target != "cuda") {
      reason = "is not GPU code";
    } else if (rank(variants[i]) == kUnfit) {
      reason = str("does not run on sm_", sm);
    } else if (choice.chosen != i) {
      reason = str(describe_variant(variants[*choice.chosen]), " fits better");
    }
    choice.reasons.push_back(std::move(reason));
  }
  return choice;
}

std::string describe_variant(const CodeVariant& variant) {
  if (variant.target != "cpu") {
    std::string text = variant.target;
    if (variant.sm != 0 && !variant.fallback_only) text += str(" sm_", variant.sm);
    if (variant.ptx == 0) return text;
    return str(text, variant.fallback_only ? "" : " with", " PTX for compute_", variant.ptx);
  }
  return variant.isa.empty() ? std::string("cpu") : str("cpu ", variant.isa);
}

std::string describe_choice(const std::vector<CodeVariant>& variants, const VariantChoice& choice) {
  std::string text;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (!text.empty()) text += "; ";
    text += describe_variant(variants[i]);
    if (!choice.reasons[i].empty()) text += str(" (", choice.reasons[i], ")");
  }
  return text;
}

}  // namespace cudaexec
