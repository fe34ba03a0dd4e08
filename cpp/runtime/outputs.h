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

  /// How a captured call delivers a leaf.
  struct Captured {
    bool fixed = false;  // `value` is the same in every replay; a tensor on the host is cloned
    bool shares = true;  // may share memory with others of the call, as in eager
    Value value;         // else the tensor that each replay computes
  };
  /// One per leaf, for what a captured run returned. `inputs`: storages that replays overwrite.
  /// @throws as take(); CaptureError where a number would have to be read on the host.
  [[nodiscard]] std::vector<Captured> captured(const std::vector<Tensor>& graph_outputs,
                                               const std::vector<const Storage*>& inputs,
                                               const Dims& symbols) const;

 private:
  struct Leaf {
    const OutputSpec* spec = nullptr;
    bool last_use = true;  // of its graph output
    size_t index = 0;      // of the leaf
  };
  [[nodiscard]] static bool is_own(const Storage& storage,
                                   const std::vector<const Storage*>& inputs) noexcept;
  [[nodiscard]] static Tensor own(Tensor tensor, const std::vector<const Storage*>& inputs,
                                  const CallMemory& memory);
  void check(const Leaf& leaf, const Tensor& tensor) const;
  /// Of leaves that are not computed on tensors.
  [[nodiscard]] Value computed(const Leaf& leaf, const Dims& symbols) const;
  [[nodiscard]] Value number_on_host(const Leaf& leaf, const Tensor& number) const;
  void check_number(const Leaf& leaf, const Tensor& number) const;
  [[nodiscard]] Value scalar(const Leaf& leaf, const Tensor& number,
                             const CallMemory& memory) const;

  const MethodSpec& spec_;
  std::vector<Leaf> leaves_;
};

}  // namespace cudaexec
