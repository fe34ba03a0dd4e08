// How what a captured call computes becomes its outputs, which own their memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "memory/cuda_graph_memory.h"
#include "memory/pinned_block.h"
#include "runtime/bound_outputs.h"
#include "runtime/graph_copies.h"
#include "runtime/outputs.h"

namespace cudaexec {

/// Memory that outputs share.
struct GraphBlock {
  void* data = nullptr;
  size_t nbytes = 0;
};

/// Where the memory of captured calls is.
struct GraphTargets {
  bool in_place = false;                 // where it is in the captured call; else anew in each
  const BoundOutputs* bound = nullptr;   // in place: outputs of a Binding, or
  std::span<const GraphBlock> blocks{};  // blocks() of a graph of such calls
};

class GraphOutputs {
 public:
  explicit GraphOutputs(CudaDevice& device) noexcept : device_(device), copies_(device) {}
  GraphOutputs(const GraphOutputs&) = delete;
  GraphOutputs& operator=(const GraphOutputs&) = delete;

  /// In the capture: plans the copies of what the code returned. Fresh memory is of the host if
  /// `to_host`. @throws OutOfMemory, CaptureError if `targets` has other blocks.
  void plan(std::vector<OutputPlan::Captured> leaves, bool to_host, const GraphTargets& targets,
            const GraphArena& arena);
  /// Allocations of `arena` that the memory of `targets` could replace: captured again with these,
  /// the code writes there itself.
  [[nodiscard]] const std::vector<GraphRedirect>& redirects() const noexcept { return redirects_; }
  [[nodiscard]] GraphCopies& copies() noexcept { return copies_; }

  [[nodiscard]] const GraphCopies& copies() const noexcept { return copies_; }
  /// Whether nodes bring them all to fresh memory of the GPU.
  [[nodiscard]] bool on_gpu() const noexcept;

  /// Whether the outputs lie in their blocks as those of `other` do.
  [[nodiscard]] bool lies_like(const GraphOutputs& other) const;

  /// Before a launch: memory for its outputs, one value per leaf. @throws OutOfMemory.
  void prepare(const CallMemory& memory, std::vector<Value>& values);
  /// That memory, of the launch prepared last.
  [[nodiscard]] std::span<const GraphBlock> blocks() const noexcept { return blocks_; }
  /// After it: outputs on the host are there on return.
  void deliver(const CallMemory& memory, std::vector<Value>& values);
  /// Page-locked bytes that it keeps.
  [[nodiscard]] size_t staging_nbytes() const noexcept { return staging_.nbytes(); }

 private:
  enum class Way : uint8_t {
    kFixed,
    kClone,   // of a tensor on the host
    kGroup,   // a view of fresh memory that a node fills
    kBound,   // written where it belongs, by the code or by a node
    kStaged,  // to the host: through page-locked memory
    kCopy,    // to the host: copied after the launch
  };
  struct Leaf {
    Way way = Way::kFixed;
    Value value;          // kFixed, kClone
    Dims sizes, strides;  // of the others
    Dtype dtype = Dtype::kFloat32;
    const void* src = nullptr;
    size_t nbytes = 0;   // from the first element to the last
    size_t group = 0;    // kGroup
    int64_t offset = 0;  // kGroup: elements; kStaged: bytes
  };
  struct Group {  // outputs that share memory
    const Storage* storage;
    const std::byte* first;
    const std::byte* last;
    GraphCopies::Slot slot;
  };
  void plan_leaf(Leaf& leaf, const OutputPlan::Captured& captured, bool to_host,
                 const Tensor* place);
  void plan_bound(Leaf& leaf, const Tensor& tensor, const Tensor& place);
  void plan_group(Leaf& leaf, const Tensor& tensor, bool shares);
  void find_redirects(const std::vector<OutputPlan::Captured>& leaves, const GraphArena& arena);
  void capture_groups(const GraphTargets& targets, const GraphArena& arena);
  void redirect_group(const Group& group, void* target, const GraphArena& arena);

  CudaDevice& device_;
  GraphCopies copies_;
  const BoundOutputs* bound_ = nullptr;
  std::vector<GraphRedirect> redirects_;
  PinnedBlock staging_;
  std::vector<Leaf> leaves_;
  std::vector<Group> groups_;
  std::vector<StoragePtr> fresh_;   // per group, of the call that is being prepared
  std::vector<GraphBlock> blocks_;  // per group
  bool waits_ = false;
};

}  // namespace cudaexec
