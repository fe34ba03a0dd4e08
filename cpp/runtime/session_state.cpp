#include "runtime/session_state.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "memory/cuda_pool_allocator.h"
#include "runtime/graph_set.h"
#include "runtime/weight_upload.h"

namespace cudaexec {
namespace {

std::span<const std::byte> bytes_of(const Storage& storage) {
  return {static_cast<const std::byte*>(storage.data()), storage.nbytes()};
}

/// Ends early at the first other byte.
bool is_zero(std::span<const std::byte> bytes) noexcept {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

StoragePtr clone_buffer(const Storage& source, CudaDevice* gpu) {
  StoragePtr owner;
  if (gpu == nullptr) {
    owner = Storage::allocate(source.nbytes(), Device{}, cpu_allocator(), {});
    if (source.nbytes() != 0) std::memcpy(owner->data(), source.data(), source.nbytes());
  } else {
    const StreamRef stream = gpu->thread_stream();
    owner = Storage::allocate(source.nbytes(), gpu->device(), cuda_allocator(gpu->index()), stream);
    if (source.device().is_cpu()) {
      const Upload bytes{owner->data(), bytes_of(source)};
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

SessionState::SessionState(const WeightTable& table, const WeightStore& weights, CudaDevice* gpu,
                           const KvUse* kv)
    : table_(table),
      weights_(weights),
      gpu_(gpu),
      counters_(table.methods.size()),
      buffers_(table.entries.size()),
      uses_(gpu != nullptr ? std::make_shared<StreamUses>(*gpu) : nullptr),
      kv_(kv, *this),
      containers_(table.methods.size()) {}

SessionState::~SessionState() { close(); }

void SessionState::close() noexcept {
  (void)gate_.close();
  const std::lock_guard lock(mutex_);  // a second closer waits until everything is freed
  if (mutex_.interrupted()) abandon_containers();
  drop_containers();
  kv_.close();
  for (StoragePtr& buffer : buffers_) buffer = StoragePtr();
  nbytes_.store(0);
}

CallCounts SessionState::counts(size_t method) const noexcept {
  const Counters& counters = counters_[method];
  return {counters.calls.load(std::memory_order_relaxed),
          counters.errors.load(std::memory_order_relaxed)};
}

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
      set_buffer(entry,
                 clone_buffer(*storages[entry], table_.entries[entry].on_gpu ? gpu_ : nullptr));
    }
    storages[entry] = buffers_[entry];
  }
  bound->uses = uses_;
  bound->container = code.create(storages);
  bound->graphs = code.make_graphs();
  place = std::move(bound);
  counters_[index].bound.store(true);
  return *place;
}

void SessionState::set_buffer(size_t entry, StoragePtr buffer) noexcept {
  nbytes_.fetch_add(buffer->nbytes() - (buffers_[entry] ? buffers_[entry]->nbytes() : 0));
  buffers_[entry] = std::move(buffer);
  kv_.mark_stale();
}

void SessionState::rewind(int64_t position) {
  wait_for_kv();
  kv_.rewind(position);
}

void SessionState::reset() {
  wait_for_kv();
  const auto initial = weights_.get();
  if (gpu_ != nullptr) {
    wait_for_host_buffers();
    reset_on_gpu(*initial);
  }
  reset_on_host(*initial);
  kv_.reset();
}

/// For the host to see what the GPU has found, and for pages to be shared.
void SessionState::wait_for_kv() {
  if (gpu_ == nullptr || !kv_.is_in_use()) return;
  const StreamRef stream = gpu_->thread_stream();
  StreamUse use(*uses_, stream, true);
  gpu_->synchronize(stream);
  use.finish();
}

void SessionState::reset_on_host(const WeightSet& initial) noexcept {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const StoragePtr& buffer = buffers_[i];
    if (!buffer || !buffer->device().is_cpu() || buffer->nbytes() == 0) continue;
    std::memcpy(buffer->data(), initial.storages[i]->data(), buffer->nbytes());
  }
}

void SessionState::reset_on_gpu(const WeightSet& initial) {
  const StreamRef stream = gpu_->thread_stream();
  // What can fail for want of memory comes first, into memory of its own.
  std::vector<StoragePtr> values(buffers_.size());  // by entry; none: zeros
  std::vector<Upload> uploads;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!buffers_[i] || buffers_[i]->device().is_cpu()) continue;
    const Storage& source = *initial.storages[i];
    if (!source.device().is_cpu()) {
      values[i] = initial.storages[i];
    } else if (!is_zero(bytes_of(source))) {
      values[i] =
          Storage::allocate(source.nbytes(), gpu_->device(), cuda_allocator(gpu_->index()), stream);
      uploads.push_back({values[i]->data(), bytes_of(source)});
    }
  }
  upload(*gpu_, uploads, stream);
  const StreamUse use(*uses_, stream, true);  // its end does not throw: the buffers are reset then
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const StoragePtr& buffer = buffers_[i];
    if (!buffer || buffer->device().is_cpu() || buffer->nbytes() == 0) continue;
    if (values[i]) {
      gpu_->copy(buffer->data(), gpu_->device(), values[i]->data(), gpu_->device(),
                 buffer->nbytes(), stream);
    } else {
      gpu_->zero(buffer->data(), buffer->nbytes(), stream);
    }
  }
}

/// The host reads and writes these without a stream.
void SessionState::wait_for_host_buffers() noexcept {
  for (const StoragePtr& buffer : buffers_) {
    if (buffer && buffer->device().is_cpu()) return uses_->wait();
  }
}

void SessionState::copy_to(SessionState& copy) {
  std::optional<StreamUse> use;
  if (gpu_ != nullptr) {
    wait_for_host_buffers();
    use.emplace(*uses_, gpu_->thread_stream(), true);
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!buffers_[i]) continue;
    copy.set_buffer(i, clone_buffer(*buffers_[i], table_.entries[i].on_gpu ? gpu_ : nullptr));
  }
  if (use) use->finish();
  wait_for_kv();
  kv_.fork_to(copy.kv_);
  copy.random_.copy_from(random_);
}

void SessionState::drop_container(size_t method) noexcept {
  counters_[method].bound.store(false);
  containers_[method].reset();
}

/// In a forked child, where some may be in the middle of a call of another thread: they stay as
/// they are, unused.
void SessionState::abandon_containers() noexcept {
  for (size_t i = 0; i < containers_.size(); ++i) {
    (void)containers_[i].release();
    drop_container(i);
  }
}

void SessionState::drop_containers() noexcept {
  if (uses_ != nullptr) uses_->wait();
  for (size_t i = 0; i < containers_.size(); ++i) drop_container(i);
}

void SessionState::drop_graphs() {
  const std::lock_guard lock(mutex_);
  if (mutex_.interrupted()) return;
  for (const auto& container : containers_) {
    if (container != nullptr) container->drop_graphs();
  }
}

bool SessionState::yield_graphs() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!owner_.is_this_thread() && (!lock.try_lock() || mutex_.interrupted())) return false;
  bool any = false;
  for (const auto& container : containers_) {
    if (container != nullptr) any = container->yield_graphs() || any;
  }
  return any;
}

void SessionState::drop_outdated() noexcept {
  const std::lock_guard lock(mutex_);
  if (mutex_.interrupted()) return;
  for (size_t i = 0; i < containers_.size(); ++i) {
    const auto& container = containers_[i];
    if (container == nullptr || weights_.is_current(container->weights.get())) continue;
    if (uses_ != nullptr) uses_->wait();
    drop_container(i);
  }
}

void SessionLock::lock() {
  if (session_.owner_.is_this_thread()) [[unlikely]] {
    throw SessionBusy(
        "the session is in use by this very thread: a call cannot use its own session; make another"
        " session, or wait until the call is over");
  }
  session_.mutex_.lock();
}

SessionLock::SessionLock(SessionState& session) : session_(session) {
  lock();
  if (session.mutex_.interrupted()) [[unlikely]] {
    session.mutex_.unlock();
    throw SessionBusy(
        "the session was in use by another thread when this process was forked, so its mutable "
        "buffers may be half written; reset() it, make another session, or fork while no thread "
        "uses it");
  }
  session.owner_.set();
}

SessionLock::SessionLock(SessionState& session, Mend) : session_(session) {
  lock();
  if (session.mutex_.interrupted()) session.abandon_containers();
  session.mutex_.mend();
  session.owner_.set();
}

SessionLock::~SessionLock() {
  session_.owner_.clear();
  session_.mutex_.unlock();
}

}  // namespace cudaexec
