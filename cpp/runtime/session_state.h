// What calls change: the buffers that programs write, and the containers bound to them. One per
// session; its calls are serialised by its lock. Methods that write the same FQN share it here.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/random_state.h"
#include "runtime/bound_container.h"
#include "runtime/container_pool.h"

namespace cudaexec {

class SessionState {
 public:
  /// `table` and `weights` must outlive it. Buffers are copied from the weights on first use, to
  /// `gpu` (null on the CPU) where they belong there.
  SessionState(const WeightTable& table, const WeightStore& weights, CudaDevice* gpu);
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  /// Held by every call that reads or writes state, and around everything below.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

  /// Where random operators of its calls get their numbers. Thread-safe by itself.
  [[nodiscard]] RandomState& random() noexcept { return random_; }
  /// The container of method `index` over this session's buffers and the current weights.
  /// @throws OutOfMemory, and what MethodCode::create throws; then nothing changed.
  [[nodiscard]] BoundContainer& container(size_t index, const MethodCode& code);
  /// This session's copy of an entry; null until a method first used it.
  [[nodiscard]] const StoragePtr& buffer(size_t entry) const noexcept { return buffers_[entry]; }
  /// Replaces the copy; drop_containers() must follow.
  void set_buffer(size_t entry, StoragePtr buffer) noexcept { buffers_[entry] = std::move(buffer); }
  /// Destroys the containers, after waiting for the calls in flight; the buffers stay.
  void drop_containers() noexcept;
  /// Gives up the CUDA graphs of its containers. Takes the lock.
  void drop_graphs();
  /// On a GPU: where its buffers are in use; else null.
  [[nodiscard]] const std::shared_ptr<StreamUses>& uses() const noexcept { return uses_; }
  /// Bytes of this session's own buffers.
  [[nodiscard]] size_t nbytes() const noexcept;

 private:
  const WeightTable& table_;
  const WeightStore& weights_;
  mutable std::mutex mutex_;
  RandomState random_;
  CudaDevice* gpu_;
  std::vector<StoragePtr> buffers_;  // by entry
  std::shared_ptr<StreamUses> uses_;
  std::vector<std::unique_ptr<BoundContainer>> containers_;  // by method
};

/// A writable copy of `source`, on `gpu` if there is one, else on the host; there on return. It
/// counts as borrowed memory, so that no output aliases it. `source` is on the host or on `gpu`.
StoragePtr clone_buffer(const Storage& source, CudaDevice* gpu);

}  // namespace cudaexec
