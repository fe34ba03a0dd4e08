#include "runtime/bound_container.h"

#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "runtime/graph_set.h"

namespace cudaexec {

BoundContainer::BoundContainer() = default;

BoundContainer::~BoundContainer() {
  if (uses != nullptr) uses->wait();
}

void BoundContainer::drop_graphs() {
  if (graphs == nullptr) return;
  uses->wait();
  graphs->clear();
}

bool BoundContainer::yield_graphs() {
  if (graphs == nullptr || graphs.get() == GraphSet::current()) return false;
  uses->wait();
  return graphs->yield_all();
}

MethodCode::MethodCode(std::shared_ptr<SharedObject> code, const MethodSpec& spec,
                       const std::vector<MethodConstant>& constants, bool dense, std::string path,
                       CudaDevice* gpu)
    : code_(std::move(code)),
      spec_(spec),
      constants_(constants),
      dense_(dense),
      path_(std::move(path)),
      gpu_(gpu) {}

std::unique_ptr<GraphSet> MethodCode::make_graphs() const {
  if (graphs_ == nullptr) return nullptr;
  return std::make_unique<GraphSet>(*graphs_, *gpu_, *graph_memory_);
}

std::unique_ptr<Container> MethodCode::create(std::span<const StoragePtr> storages) const {
  auto container = std::make_unique<Container>(code_, gpu_ != nullptr ? gpu_->device() : Device{});
  check_counts(*container);
  if (dense_) {
    const StoragePtr& blob = storages[constants_.front().view.entry];
    container->bind_blob({static_cast<const std::byte*>(blob->data()), blob->nbytes()},
                         std::make_shared<StoragePtr>(blob));
  } else if (!container->constants().empty()) {
    container->bind(bindings(*container, storages));
  }
  return container;
}

void MethodCode::check_counts(const Container& container) const {
  if (container.num_inputs() == spec_.num_graph_inputs &&
      container.num_outputs() == spec_.num_graph_outputs) {
    return;
  }
  throw FormatError(str(path_, ": method '", spec_.name, "': the code takes ",
                        container.num_inputs(), " inputs and returns ", container.num_outputs(),
                        "; the program describes ", spec_.num_graph_inputs, " and ",
                        spec_.num_graph_outputs, "; export the file again"));
}

const MethodConstant* MethodCode::find(const ContainerConstant& wanted) const {
  for (const MethodConstant& constant : constants_) {
    if (constant.name.empty() ? constant.fqn == wanted.fqn : constant.name == wanted.name) {
      return &constant;
    }
  }
  return nullptr;
}

std::vector<ConstantBinding> MethodCode::bindings(const Container& container,
                                                  std::span<const StoragePtr> storages) const {
  std::vector<ConstantBinding> bound;
  for (const ContainerConstant& wanted : container.constants()) {
    if (wanted.from_folded) continue;
    const MethodConstant* constant = find(wanted);
    const char* problem = constant == nullptr ? "is not among the program's weights" : nullptr;
    if (constant != nullptr && wanted.dtype != static_cast<int32_t>(constant->view.dtype)) {
      problem = "has another dtype in the program's weights";
    }
    if (problem != nullptr) {
      throw FormatError(str(path_, ": method '", spec_.name, "': the code's constant '",
                            wanted.name, "' (", wanted.fqn, ", dtype code ", wanted.dtype, ") ",
                            problem, "; export the file again"));
    }
    bound.push_back({wanted.name, constant->view.over(storages[constant->view.entry])});
  }
  return bound;
}

}  // namespace cudaexec
