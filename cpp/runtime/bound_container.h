// A container of generated code bound to one set of storages, with the buffers of its calls.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aoti/container.h"
#include "format/manifest.h"
#include "runtime/weight_table.h"

namespace cudaexec {

/// The storages behind a program's weights at one time, one per entry of the WeightTable. Replaced
/// as a whole, never changed.
struct WeightSet {
  std::vector<StoragePtr> storages;
};

/// Owned by one call at a time.
struct BoundContainer {
  std::shared_ptr<const WeightSet> weights;  // what it was bound to
  std::unique_ptr<Container> container;
  bool has_run = false;
  // Kept between calls so that they need no allocation.
  std::vector<Tensor> inputs, outputs;
  std::vector<const Storage*> input_storages;
};

/// A method's code and how its constants map to storages.
class MethodCode {
 public:
  /// `spec` and `constants` must outlive it. `dense`: the constants are one blob, entry 0 of
  /// `constants`, in the container's own order.
  MethodCode(std::shared_ptr<SharedObject> code, const MethodSpec& spec,
             const std::vector<MethodConstant>& constants, bool dense, std::string path);

  /// A container over `storages`, indexed as the WeightTable.
  /// @throws FormatError if the code has other inputs, outputs or constants than the spec.
  [[nodiscard]] std::unique_ptr<Container> create(std::span<const StoragePtr> storages) const;

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
};

}  // namespace cudaexec
