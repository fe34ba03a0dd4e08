// How the inputs of a captured call get to where its code reads them.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph_copies.h"
#include "runtime/input_check.h"

namespace cudaexec {

class GraphInputs {
 public:
  /// Plans the copies of inputs like these into memory of `arena`; `in_place`: those that the code
  /// can take as they lie stay there, and are the same in every launch. Loads the kernels that it
  /// needs; the device is current. `check` outlives it. @throws as InputCheck::bind, NotSupported.
  GraphInputs(CudaDevice& device, const InputCheck& check, std::span<const Value> inputs,
              const Dims& symbols, bool in_place, Allocator& arena, StreamRef stream);

  /// The tensors that the code takes.
  [[nodiscard]] std::vector<Tensor> graph_inputs() const;
  /// Their storages: each replay overwrites them.
  [[nodiscard]] std::vector<const Storage*> storages() const;
  [[nodiscard]] GraphCopies& copies() noexcept { return copies_; }
  [[nodiscard]] const GraphCopies& copies() const noexcept { return copies_; }
  /// After the capture: lets go of memory of the caller's.
  void release() noexcept;
  /// Whether nodes fetch them all from the GPU.
  [[nodiscard]] bool on_gpu() const noexcept;
  /// Adds the address of each tensor of a call.
  void add_places(std::span<const Value> inputs, std::vector<const void*>& places) const;

  /// Before a launch: where its inputs are. What no node can fetch, large arrays of the host, is
  /// copied on the call's stream.
  void feed(std::span<const Value> inputs, const CallMemory& memory);

 private:
  enum class Way : uint8_t {
    kNothing,  // empty, or where it is
    kRun,      // a run of bytes on the GPU
    kStrided,  // kernels
    kBytes,    // of the host, carried by a node's arguments
    kCopy,     // of the host, copied before the launch
  };
  struct Part {
    GraphCopies::Slot slot;
    ptrdiff_t offset;  // bytes from the tensor's first element
  };
  struct Feed {
    InputCheck::Place place;
    Way way = Way::kNothing;
    std::vector<Part> parts;
  };
  void plan(CudaDevice& device, Feed& feed, const Tensor& tensor);

  const InputCheck& check_;
  GraphCopies copies_;
  std::vector<Feed> feeds_;
};

}  // namespace cudaexec
