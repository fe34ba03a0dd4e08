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
  /// `table` and `weights` must outlive it. Buffers are copied from the weights on first use.
  SessionState(const WeightTable& table, const WeightStore& weights);
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
  /// Destroys the containers; the buffers stay.
  void drop_containers() noexcept;
  /// Bytes of this session's own buffers.
  [[nodiscard]] size_t nbytes() const noexcept;

 private:
  const WeightTable& table_;
  const WeightStore& weights_;
  mutable std::mutex mutex_;
  RandomState random_;
  std::vector<StoragePtr> buffers_;                          // by entry
  std::vector<std::unique_ptr<BoundContainer>> containers_;  // by method
};

/// A writable copy of `source` that counts as borrowed memory, so that no output aliases it.
StoragePtr clone_buffer(const Storage& source);

}  // namespace cudaexec
