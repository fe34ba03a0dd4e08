#include "runtime/container_pool.h"

#include <utility>

#include "base/fork_mutex.h"
#include "runtime/graph_set.h"

namespace cudaexec {

std::shared_ptr<const WeightSet> WeightStore::get() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void WeightStore::set(std::shared_ptr<const WeightSet> weights) noexcept {
  const std::lock_guard lock(mutex_);
  std::swap(current_, weights);  // the old set goes after the lock
  identity_.store(current_.get(), std::memory_order_release);
}

void run_bound(BoundContainer& bound, ForkMutex& first_run, StreamRef stream,
               Allocator& allocator) {
  if (bound.has_run) [[likely]] {
    bound.container->run(bound.inputs, bound.outputs, stream, allocator);
    return;
  }
  const std::lock_guard lock(first_run);
  bound.container->run(bound.inputs, bound.outputs, stream, allocator);
  bound.has_run = true;
}

std::unique_ptr<BoundContainer> ContainerPool::acquire() {
  while (true) {
    std::unique_ptr<BoundContainer> outdated;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) break;
    std::unique_ptr<BoundContainer> bound = std::move(idle_.back());
    idle_.pop_back();
    if (weights_.is_current(bound->weights.get())) [[likely]]
      return bound;
    outdated = std::move(bound);
    --alive_;
  }
  auto bound = std::make_unique<BoundContainer>();
  bound->weights = weights_.get();
  if (code_.gpu() != nullptr) bound->uses = std::make_shared<StreamUses>(*code_.gpu());
  bound->container = code_.create(bound->weights->storages);
  bound->graphs = code_.make_graphs();
  const std::lock_guard lock(mutex_);
  idle_.reserve(alive_ + 1);
  ++alive_;
  return bound;
}

void ContainerPool::release(std::unique_ptr<BoundContainer> bound) noexcept {
  bound->inputs.clear();
  bound->outputs.clear();
  bound->input_storages.clear();
  const std::lock_guard lock(mutex_);
  if (weights_.is_current(bound->weights.get())) [[likely]] {
    idle_.push_back(std::move(bound));
  } else {
    --alive_;
  }
}

void ContainerPool::shrink(size_t keep) {
  while (true) {
    std::unique_ptr<BoundContainer> victim;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    size_t index = idle_.size() > keep ? 0 : idle_.size();
    for (size_t i = 0; i < idle_.size(); ++i) {
      if (!weights_.is_current(idle_[i]->weights.get())) index = i;
    }
    if (index == idle_.size()) {
      for (const auto& bound : idle_) bound->drop_graphs();
      return;
    }
    victim = std::move(idle_[index]);
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(index));
    --alive_;
  }
}

bool ContainerPool::yield_graphs() {
  bool any = false;
  const std::lock_guard lock(mutex_);
  for (const auto& bound : idle_) any = bound->yield_graphs() || any;
  return any;
}

size_t ContainerPool::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return alive_;
}

}  // namespace cudaexec
