// The memory that a Binding's outputs go to.
#pragma once

#include <memory>
#include <vector>

#include "format/manifest.h"
#include "runtime/gpu_call.h"
#include "runtime/module.h"

namespace cudaexec {

struct BoundOutputs : std::enable_shared_from_this<BoundOutputs> {
  /// One per leaf: a tensor, or nothing for leaves that are none.
  std::vector<Value> places;

  /// The tensor of a leaf; null where there is none.
  [[nodiscard]] const Tensor* place(size_t leaf) const noexcept {
    return std::get_if<Tensor>(&places[leaf]);
  }
  /// Copies what a call returned; what is on the host is there on return.
  void fill(const std::vector<Value>& values, const CallMemory& memory) const;
};

/// Checks memory for the outputs of a call with these sizes and inputs.
/// @throws InputError (count, kind, overlaps), DtypeError, ShapeError, DeviceError, naming the
/// output.
void check_bound_outputs(const MethodSpec& spec, const Dims& symbols, Device device,
                         std::span<const Value> inputs, std::span<const Value> outputs);

}  // namespace cudaexec
