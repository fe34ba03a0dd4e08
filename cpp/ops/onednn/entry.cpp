// The one function that libcudaexec_onednn.so exports.
#include "base/version.h"
#include "ops/onednn/convolve.h"
#include "ops/onednn/prepared.h"
#include "ops/onednn_loader.h"

extern "C" CUDAEXEC_API const cudaexec::ops::OnednnFunctions* cudaexec_onednn_functions() {
  static constexpr cudaexec::ops::OnednnFunctions functions{
      cudaexec::kVersion, &cudaexec::ops::onednn::convolve,
      &cudaexec::ops::onednn::cached_primitives};
  return &functions;
}
