#include "aoti/container_functions.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {

ContainerFunctions::ContainerFunctions(const SharedObject& code) {
  std::vector<std::string> missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(code.symbol(name));
    return function != nullptr;
  };
  const auto require = [&](const char* name, auto& function) {
    if (!find(name, function)) missing.emplace_back(name);
  };
  require("AOTInductorModelContainerCreateWithDevice", create);
  require("AOTInductorModelContainerDelete", destroy);
  require("AOTInductorModelContainerGetNumInputs", num_inputs);
  require("AOTInductorModelContainerGetNumOutputs", num_outputs);
  if (!find("AOTInductorModelContainerRunSingleThreaded", run)) {
    require("AOTInductorModelContainerRun", run);
  }
  if (!missing.empty()) {
    throw TargetError(str("library '", code.name(), "' lacks the entry points ", list_str(missing),
                          "; it is not code of AOTInductor"));
  }
  find("AOTInductorModelContainerGetNumConstants", num_constants);
  find("AOTInductorModelContainerGetConstantName", constant_name);
  find("AOTInductorModelContainerGetConstantOriginalFQN", constant_fqn);
  find("AOTInductorModelContainerGetConstantDtype", constant_dtype);
  find("AOTInductorModelContainerGetConstantDataSize", constant_nbytes);
  find("AOTInductorModelContainerGetConstantFromFolded", constant_folded);
  find("AOTInductorModelContainerUpdateUserManagedConstantBufferPairs", update_pairs);
  find("AOTInductorModelUpdateConstantsFromBlob", update_from_blob);
  find("AOTInductorGetLastError", last_error);
}

}  // namespace cudaexec
