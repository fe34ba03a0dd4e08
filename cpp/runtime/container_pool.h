// The containers of a method without state: one per concurrently running call, over the same
// weights.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/fork_mutex.h"
#include "runtime/bound_container.h"

namespace cudaexec {

/// The current weights of a program; replaced as a whole. Thread-safe.
class WeightStore {
 public:
  explicit WeightStore(std::shared_ptr<const WeightSet> weights)
      : current_(std::move(weights)), identity_(current_.get()) {}
  [[nodiscard]] std::shared_ptr<const WeightSet> get() const;
  void set(std::shared_ptr<const WeightSet> weights) noexcept;
  /// Whether `weights` are the current ones. A set that somebody holds never shares its address
  /// with another one.
  [[nodiscard]] bool is_current(const WeightSet* weights) const noexcept {
    return identity_.load(std::memory_order_acquire) == weights;
  }

 private:
  mutable ForkMutex mutex_;
  std::shared_ptr<const WeightSet> current_;
  std::atomic<const WeightSet*> identity_;
};

/// Runs `bound` on its own inputs and outputs. The first run of a container folds constants and
/// sets up what the library's containers share, so it happens alone (`first_run`).
void run_bound(BoundContainer& bound, ForkMutex& first_run, StreamRef stream, Allocator& allocator);

class ContainerPool : private ForkMember {
 public:
  /// Both must outlive it.
  ContainerPool(const MethodCode& code, const WeightStore& weights) noexcept
      : code_(code), weights_(weights) {}

  /// A container of one call's own, over the current weights; made if none is idle.
  [[nodiscard]] std::unique_ptr<BoundContainer> acquire();
  /// Gives it back; one over replaced weights is destroyed.
  void release(std::unique_ptr<BoundContainer> bound) noexcept;
  /// Destroys idle containers over replaced weights, and others until `keep` are left, which give
  /// up their CUDA graphs.
  void shrink(size_t keep);
  /// Idle containers give up their CUDA graphs to a call that finds no memory. Whether there were
  /// any.
  bool yield_graphs();
  /// Containers alive, idle and lent.
  [[nodiscard]] size_t size() const noexcept;
  [[nodiscard]] ForkMutex& first_run() noexcept { return first_run_; }

 private:
  /// Lent containers stay in the middle of their calls: nobody gives them back.
  void in_child(bool) noexcept override { alive_ = idle_.size(); }

  const MethodCode& code_;
  const WeightStore& weights_;
  mutable ForkMutex mutex_;
  std::vector<std::unique_ptr<BoundContainer>> idle_;  // has room for all that are alive
  size_t alive_ = 0;                                   // idle and lent
  ForkMutex first_run_;
};

/// A container lent to the calling scope.
class PooledContainer {
 public:
  explicit PooledContainer(ContainerPool& pool) : pool_(pool), bound_(pool.acquire()) {}
  ~PooledContainer() { pool_.release(std::move(bound_)); }
  PooledContainer(const PooledContainer&) = delete;
  PooledContainer& operator=(const PooledContainer&) = delete;
  [[nodiscard]] BoundContainer& get() const noexcept { return *bound_; }

 private:
  ContainerPool& pool_;
  std::unique_ptr<BoundContainer> bound_;
};

}  // namespace cudaexec
