// The C interface of libraries that AOTInductor generates: handle types and the entry points of a
// model container (torch/csrc/inductor/aoti_runtime/interface.h, torch 2.11 to 2.15).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tensor.h"

extern "C" {
struct AtenTensorOpaque;
struct AOTInductorModelContainerOpaque;
}

namespace cudaexec {

using AtenTensorHandle = AtenTensorOpaque*;
using ContainerHandle = AOTInductorModelContainerOpaque*;

/// A handle of generated code is a heap Tensor of ours.
inline Tensor& tensor_from(AtenTensorHandle handle) noexcept {
  return *reinterpret_cast<Tensor*>(handle);
}
inline AtenTensorHandle handle_from(Tensor* tensor) noexcept {
  return reinterpret_cast<AtenTensorHandle>(tensor);
}
/// Moves a tensor to a new handle, which aoti_torch_delete_tensor_object() frees.
CUDAEXEC_API AtenTensorHandle new_handle(Tensor tensor);
CUDAEXEC_API void delete_handle(AtenTensorHandle handle) noexcept;
/// Handles alive in the process: leak tests compare it.
CUDAEXEC_API int64_t live_handles() noexcept;

/// One entry of UpdateUserManagedConstantBufferPairs.
struct ConstantPair {
  const char* name;
  AtenTensorHandle handle;
};

}  // namespace cudaexec
