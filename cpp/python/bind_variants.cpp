// Which code variants of a program this machine would run, for the command line.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/str.h"
#include "device/cpu_features.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/driver.h"
#include "format/manifest.h"
#include "python/bind_format.h"
#include "python/gil.h"
#include "runtime/variant_choice.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;

/// One variant: what it is, which devices here run it, and why others do not.
struct Here {
  std::string code;
  std::vector<std::string> devices;
  std::vector<std::string> reasons;
};

void note(std::vector<Here>& variants, const VariantChoice& choice, const std::string& device,
          const std::string& target, const std::vector<CodeVariant>& specs) {
  for (size_t i = 0; i < variants.size(); ++i) {
    if (specs[i].target != target) continue;
    if (choice.chosen == i) {
      variants[i].devices.push_back(device);
    } else {
      variants[i].reasons.push_back(str(device, ": ", choice.reasons[i]));
    }
  }
}

std::vector<Here> variants_here(const MethodSpec& method) {
  std::vector<Here> variants;
  bool for_gpu = false;
  for (const CodeVariant& variant : method.variants) {
    variants.push_back({describe_variant(variant), {}, {}});
    for_gpu |= variant.target == "cuda";
  }
  note(variants, choose_cpu_variant(method.variants, CpuFeatures::host(), ""), "cpu", "cpu",
       method.variants);
  if (!for_gpu) return variants;
  if (const auto problem = cuda::driver_problem()) {
    VariantChoice none;
    none.reasons.assign(variants.size(), *problem);
    note(variants, none, "cuda", "cuda", method.variants);
    return variants;
  }
  for (int index = 0; index < cuda_device_count(); ++index) {
    const CudaFacts& facts = cuda_device(index).facts();
    note(variants, choose_cuda_variant(method.variants, facts.sm),
         str("cuda:", index, " (", facts.name, ", sm_", facts.sm, ")"), "cuda", method.variants);
  }
  return variants;
}

py::dict code_here(const std::string& text) {
  const auto found = without_gil([&] {
    std::vector<std::pair<std::string, std::vector<Here>>> methods;
    for (const MethodSpec& method : parse_manifest(text, "manifest").methods) {
      methods.emplace_back(method.name, variants_here(method));
    }
    return methods;
  });
  py::dict result;
  for (const auto& [name, variants] : found) {
    py::list listed;
    for (const Here& variant : variants) {
      py::dict entry;
      entry["text"] = variant.code;
      entry["runs_on"] = variant.devices;
      entry["reasons"] = variant.reasons;
      listed.append(entry);
    }
    result[py::str(name)] = listed;
  }
  return result;
}

}  // namespace

void register_variants(py::module_& format) {
  format.def(
      "code_here", [](const py::bytes& manifest) { return code_here(manifest); },
      py::arg("manifest"),
      "For each method, each code variant: what it is, the devices of this machine that run "
      "it, and why others do not. Opens the driver if there is code for GPUs.");
}

}  // namespace cudaexec::python
