#include "runtime/device_choice.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "runtime/program.h"

namespace cudaexec {
namespace {

constexpr std::string_view kCuda = "cuda";

bool has_target(const Program& program, std::string_view target) {
  return std::any_of(program.methods.begin(), program.methods.end(), [&](const auto& method) {
    const auto& variants = method.spec.variants;
    return std::any_of(variants.begin(), variants.end(),
                       [&](const CodeVariant& variant) { return variant.target == target; });
  });
}

/// The index of "cuda" or "cuda:<index>"; nothing for anything else.
std::optional<int> gpu_index(std::string_view text) {
  if (text == kCuda) return 0;
  if (!text.starts_with("cuda:")) return std::nullopt;
  text.remove_prefix(5);
  int index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index < 0) return std::nullopt;
  return index;
}

DeviceChoice on_gpu(int index) {
  CudaDevice& gpu = cuda_device(index);
  return {gpu.device(), &gpu, {}};
}

DeviceChoice suitable(const Program& program) {
  if (!has_target(program, kCuda)) return {};
  if (auto problem = cuda::driver_problem()) return {{}, nullptr, *problem};
  DeviceChoice choice = on_gpu(0);
  const int sm = choice.gpu->facts().sm;
  const bool fits = std::any_of(
      program.methods.begin(), program.methods.end(), [sm](const ProgramMethod& method) {
        return choose_cuda_variant(method.spec.variants, sm).chosen.has_value();
      });
  if (fits || !has_target(program, "cpu")) return choice;
  return {{},
          nullptr,
          str(to_string(choice.device), " (", choice.gpu->facts().name, ") is sm_", sm,
              ", for which the file has no code")};
}

}  // namespace

std::string code_kinds(const Program& program) {
  std::string kinds;
  for (const ProgramMethod& method : program.methods) {
    for (const CodeVariant& variant : method.spec.variants) {
      const std::string kind = describe_variant(variant);
      if (kinds.find(kind) == std::string::npos) kinds += (kinds.empty() ? "" : ", ") + kind;
    }
  }
  return kinds.empty() ? std::string("no compiled code") : kinds;
}

DeviceChoice choose_device(const Program& program, const std::string& asked) {
  if (asked.empty()) return suitable(program);
  if (asked == "cpu" || asked == "cpu:0") return {};
  const std::optional<int> index = gpu_index(asked);
  if (!index) {
    throw DeviceError(str(program.pte_path, ": there is no device '", asked,
                          "'; expected 'cpu' or 'cuda:<index>'"));
  }
  if (!has_target(program, kCuda)) {
    throw TargetError(str(program.pte_path, ": device '", asked, "' was asked for; the file holds ",
                          code_kinds(program),
                          "; leave device out, or export with target=\"cuda\""));
  }
  try {
    return on_gpu(*index);
  } catch (const DeviceError& error) {
    throw DeviceError(
        str(program.pte_path, ": device '", asked, "' was asked for: ", error.what()));
  }
}

}  // namespace cudaexec
