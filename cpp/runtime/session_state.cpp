#include "runtime/session_state.h"

#include <cstring>

#include "memory/cuda_pool_allocator.h"
#include "runtime/graph_set.h"
#include "runtime/weight_upload.h"

namespace cudaexec {

StoragePtr clone_buffer(const Storage& source, CudaDevice* gpu) {
  StoragePtr owner;
  if (gpu == nullptr) {
    owner = Storage::allocate(source.nbytes(), Device{}, cpu_allocator(), {});
    if (source.nbytes() != 0) std::memcpy(owner->data(), source.data(), source.nbytes());
  } else {
    const StreamRef stream = gpu->thread_stream();
    owner = Storage::allocate(source.nbytes(), gpu->device(), cuda_allocator(gpu->index()), stream);
    if (source.device().is_cpu()) {
      const Upload bytes{owner->data(),
                         {static_cast<const std::byte*>(source.data()), source.nbytes()}};
      upload(*gpu, {&bytes, 1}, stream);
    } else {
      gpu->copy(owner->data(), gpu->device(), source.data(), source.device(), source.nbytes(),
                stream);
      gpu->synchronize(stream);
    }
  }
  return Storage::borrow(owner->data(), owner->nbytes(), owner->device(),
                         std::make_shared<StoragePtr>(owner), owner->stream());
}

SessionState::SessionState(const WeightTable& table, const WeightStore& weights, CudaDevice* gpu)
    : table_(table),
      weights_(weights),
      gpu_(gpu),
      buffers_(table.entries.size()),
      uses_(gpu != nullptr ? std::make_shared<StreamUses>(*gpu) : nullptr),
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
    if (!buffers_[entry]) {
      buffers_[entry] =
          clone_buffer(*storages[entry], table_.entries[entry].on_gpu ? gpu_ : nullptr);
    }
    storages[entry] = buffers_[entry];
  }
  bound->uses = uses_;
  bound->container = code.create(storages);
  bound->graphs = code.make_graphs();
  place = std::move(bound);
  return *place;
}

void SessionState::drop_containers() noexcept {
  if (uses_ != nullptr) uses_->wait();
  for (auto& container : containers_) container.reset();
}

void SessionState::drop_graphs() {
  const std::lock_guard lock(mutex_);
  for (const auto& container : containers_) {
    if (container != nullptr) container->drop_graphs();
  }
}

size_t SessionState::nbytes() const noexcept {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const StoragePtr& buffer : buffers_) total += buffer ? buffer->nbytes() : 0;
  return total;
}

}  // namespace cudaexec
