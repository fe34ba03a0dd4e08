// A container of generated code bound to one set of storages, with the buffers of its calls.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aoti/container.h"
#include "format/manifest.h"
#include "runtime/stream_uses.h"
#include "runtime/weight_table.h"

namespace cudaexec {

/// The storages behind a program's weights at one time, one per entry of the WeightTable. Replaced
/// as a whole, never changed.
struct WeightSet {
  std::vector<StoragePtr> storages;
};

class GraphSet;
class MethodGraphs;

/// Owned by one call at a time.
struct BoundContainer {
  BoundContainer();
  /// On a GPU: waits for the calls in flight.
  ~BoundContainer();
  BoundContainer(const BoundContainer&) = delete;
  BoundContainer& operator=(const BoundContainer&) = delete;

  std::shared_ptr<const WeightSet> weights;  // what it was bound to
  std::unique_ptr<Container> container;
  bool has_run = false;
  std::shared_ptr<StreamUses> uses;  // on a GPU; of one session's containers, the session's
  std::unique_ptr<GraphSet> graphs;  // null where calls never become CUDA graphs

  /// Gives up the graphs, after waiting for the GPU.
  void drop_graphs();
  /// The same for a call that finds no memory, unless that is one of these. Whether there were any.
  bool yield_graphs();
  // Kept between calls so that they need no allocation.
  std::vector<Tensor> inputs, outputs;
  std::vector<const Storage*> input_storages;
};

/// A method's code and how its constants map to storages.
class MethodCode {
 public:
  /// `spec` and `constants` must outlive it. `gpu`: null on the CPU. `dense`: the constants are one
  /// blob, entry 0 of `constants`, in the container's own order.
  MethodCode(std::shared_ptr<SharedObject> code, const MethodSpec& spec,
             const std::vector<MethodConstant>& constants, bool dense, std::string path,
             CudaDevice* gpu);

  /// A container over `storages`, indexed as the WeightTable.
  /// @throws FormatError if the code has other inputs, outputs or constants than the spec.
  [[nodiscard]] std::unique_ptr<Container> create(std::span<const StoragePtr> storages) const;
  [[nodiscard]] CudaDevice* gpu() const noexcept { return gpu_; }
  /// Containers get CUDA graphs, in memory of `memory`; both outlive them.
  void use_graphs(MethodGraphs& graphs, Allocator& memory) noexcept {
    graphs_ = &graphs;
    graph_memory_ = &memory;
  }
  /// For a new container; null where it gets none.
  [[nodiscard]] std::unique_ptr<GraphSet> make_graphs() const;

 private:
  void check_counts(const Container& container) const;
  [[nodiscard]] const MethodConstant* find(const ContainerConstant& wanted) const;
  [[nodiscard]] std::vector<ConstantBinding> bindings(const Container& container,
                                                      std::span<const StoragePtr> storages) const;

  std::shared_ptr<SharedObject> code_;
  const MethodSpec& spec_;
  const std::vector<MethodConstant>& constants_;
  bool dense_;
  std::string path_;
  CudaDevice* gpu_;
  MethodGraphs* graphs_ = nullptr;
  Allocator* graph_memory_ = nullptr;
};

}  // namespace cudaexec
