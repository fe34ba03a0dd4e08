// Turns the tensors that a run returned into a call's outputs, which own their memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "runtime/gpu_call.h"
#include "runtime/module.h"
#include "tensor/dims.h"

namespace cudaexec {

class OutputPlan {
 public:
  /// `spec` must outlive it. @throws FormatError if the spec contradicts itself.
  OutputPlan(const MethodSpec& spec, const std::string& path);

  /// Fills `values` with one value per leaf. Tensors are moved out of `graph_outputs`; one whose
  /// memory is not its own (an input's, a weight's, state) is copied, strides and all. `inputs` are
  /// the storages that the caller passed. A call on a GPU whose inputs are on the host gets its
  /// outputs there, after memory.host_work->wait().
  /// @throws InternalError if the program returned something else than the spec says, OutOfMemory.
  void take(std::vector<Tensor>& graph_outputs, const std::vector<const Storage*>& inputs,
            const Dims& symbols, const CallMemory& memory, std::vector<Value>& values) const;

 private:
  struct Leaf {
    const OutputSpec* spec = nullptr;
    bool last_use = true;  // of its graph output
    size_t index = 0;      // of the leaf
  };
  [[nodiscard]] static Tensor own(Tensor tensor, const std::vector<const Storage*>& inputs,
                                  const CallMemory& memory);
  void check(const Leaf& leaf, const Tensor& tensor) const;
  [[nodiscard]] Value scalar(const Leaf& leaf, const Tensor& number,
                             const CallMemory& memory) const;

  const MethodSpec& spec_;
  std::vector<Leaf> leaves_;
};

}  // namespace cudaexec
