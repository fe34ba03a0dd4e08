#include "runtime/session_state.h"

#include <cstring>

namespace cudaexec {

StoragePtr clone_buffer(const Storage& source) {
  StoragePtr owner = Storage::allocate(source.nbytes(), source.device(), cpu_allocator(), {});
  if (source.nbytes() != 0) std::memcpy(owner->data(), source.data(), source.nbytes());
  return Storage::borrow(owner->data(), owner->nbytes(), owner->device(),
                         std::make_shared<StoragePtr>(owner));
}

SessionState::SessionState(const WeightTable& table, const WeightStore& weights)
    : table_(table),
      weights_(weights),
      buffers_(table.entries.size()),
      containers_(table.methods.size()) {}

BoundContainer& SessionState::container(size_t index, const MethodCode& code) {
  std::unique_ptr<BoundContainer>& place = containers_[index];
  if (place != nullptr && weights_.is_current(place->weights.get())) [[likely]]
    return *place;

  auto bound = std::make_unique<BoundContainer>();
  bound->weights = weights_.get();
  std::vector<StoragePtr> storages = bound->weights->storages;
  for (const MethodConstant& constant : table_.methods[index]) {
    const size_t entry = constant.view.entry;
    if (!table_.entries[entry].state) continue;
    if (!buffers_[entry]) buffers_[entry] = clone_buffer(*storages[entry]);
    storages[entry] = buffers_[entry];
  }
  bound->container = code.create(storages);
  place = std::move(bound);
  return *place;
}

void SessionState::drop_containers() noexcept {
  for (auto& container : containers_) container.reset();
}

size_t SessionState::nbytes() const noexcept {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const StoragePtr& buffer : buffers_) total += buffer ? buffer->nbytes() : 0;
  return total;
}

}  // namespace cudaexec
