// What calls change: the buffers that programs write, the containers bound to them, random numbers.
// One per session; calls that use the buffers are serialised by its lock. Methods that write the
// same FQN share it here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/fork_mutex.h"
#include "ops/random_state.h"
#include "runtime/bound_container.h"
#include "runtime/call_gate.h"
#include "runtime/container_pool.h"
#include "runtime/kv_session.h"

namespace cudaexec {

/// Calls of one method.
struct CallCounts {
  uint64_t calls = 0;   // that began, refused ones too
  uint64_t errors = 0;  // of these, the ones that threw
};

class SessionState {
 public:
  /// `table`, `weights` and `kv` (null without a KV cache) must outlive it. Buffers are copied from
  /// the weights on first use, to `gpu` (null on the CPU) where they belong there.
  SessionState(const WeightTable& table, const WeightStore& weights, CudaDevice* gpu,
               const KvUse* kv);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  /// Around everything that uses the session; close() waits for it.
  [[nodiscard]] CallGate& gate() noexcept { return gate_; }
  /// Frees buffers and containers, after calls in flight; later ones find the gate closed.
  void close() noexcept;

  /// Where random operators of its calls get their numbers. Thread-safe by itself.
  [[nodiscard]] RandomState& random() noexcept { return random_; }
  /// Thread-safe.
  void count_call(size_t method) noexcept {
    counters_[method].calls.fetch_add(1, std::memory_order_relaxed);
  }
  void count_error(size_t method) noexcept {
    counters_[method].errors.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] CallCounts counts(size_t method) const noexcept;
  /// Bytes of this session's own buffers. Never waits for a call.
  [[nodiscard]] size_t nbytes() const noexcept { return nbytes_.load(); }
  /// Whether it has a container for a method. Never waits for a call.
  [[nodiscard]] bool has_container(size_t method) const noexcept {
    return counters_[method].bound.load();
  }

  /// Destroys containers over replaced weights, after the call in flight.
  void drop_outdated() noexcept;
  /// Gives up the CUDA graphs of its containers, after the call in flight.
  void drop_graphs();
  /// The same for a call of this thread that finds no memory; nothing while another thread is in a
  /// call of this session. Whether there were any.
  bool yield_graphs();

  // What follows is called with a SessionLock held.

  /// The container of method `index` over this session's buffers and the current weights.
  /// @throws OutOfMemory, and what MethodCode::create throws; then nothing changed.
  [[nodiscard]] BoundContainer& container(size_t index, const MethodCode& code);
  /// This session's copy of an entry; null until a method first used it.
  [[nodiscard]] const StoragePtr& buffer(size_t entry) const noexcept { return buffers_[entry]; }
  /// Replaces the copy; drop_containers() must follow.
  void set_buffer(size_t entry, StoragePtr buffer) noexcept;
  /// Gives every buffer its initial value again, where it is: bound containers stay right. On a GPU
  /// it follows the calls so far and later ones follow it. @throws OutOfMemory; then nothing
  /// changed. DeviceError where the GPU refuses a copy; then some buffers may be reset.
  void reset();
  /// Gives `copy`, which is new, copies of the buffers and the place in the random numbers.
  void copy_to(SessionState& copy);
  /// Destroys the containers, after waiting for the calls in flight; the buffers stay.
  void drop_containers() noexcept;
  /// On a GPU: where its buffers are in use; else null.
  [[nodiscard]] const std::shared_ptr<StreamUses>& uses() const noexcept { return uses_; }
  /// Its KV cache; see there what may be called without the lock.
  [[nodiscard]] KvSession& kv() noexcept { return kv_; }
  /// Forgets the tokens of the KV cache from `position` on, after the calls so far.
  void rewind(int64_t position);

 private:
  friend class SessionLock;
  /// The thread that holds the lock. In a forked child another one may get its id.
  class Owner : private ForkMember {
   public:
    Owner() = default;
    ~Owner() = default;
    void set() noexcept { id_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
    void clear() noexcept { id_.store({}, std::memory_order_relaxed); }
    [[nodiscard]] bool is_this_thread() const noexcept {
      return id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }

   private:
    void in_child(bool) noexcept override { clear(); }
    std::atomic<std::thread::id> id_{};
  };
  struct Counters {
    std::atomic<uint64_t> calls{0}, errors{0};
    std::atomic<bool> bound{false};
  };
  void drop_container(size_t method) noexcept;
  void abandon_containers() noexcept;
  void wait_for_host_buffers() noexcept;
  void wait_for_kv();
  void reset_on_host(const WeightSet& initial) noexcept;
  void reset_on_gpu(const WeightSet& initial);

  const WeightTable& table_;
  const WeightStore& weights_;
  CallGate gate_;
  ForkMutex mutex_;
  Owner owner_;
  RandomState random_;
  CudaDevice* gpu_;
  std::vector<Counters> counters_;   // by method
  std::vector<StoragePtr> buffers_;  // by entry
  std::atomic<size_t> nbytes_{0};
  std::shared_ptr<StreamUses> uses_;
  KvSession kv_;
  std::vector<std::unique_ptr<BoundContainer>> containers_;  // by method
};

/// One use of a session's buffers at a time.
class SessionLock {
 public:
  /// Waits for the others. @throws SessionBusy if this thread is inside a use already, and in a
  /// forked child if another thread of the parent was: the buffers may be half written then.
  explicit SessionLock(SessionState& session);
  struct Mend {};
  /// As above, but in such a child what was left half done is put aside; the buffers have to be
  /// written next.
  SessionLock(SessionState& session, Mend);
  ~SessionLock();
  SessionLock(const SessionLock&) = delete;
  SessionLock& operator=(const SessionLock&) = delete;

 private:
  void lock();

  SessionState& session_;
};

/// A writable copy of `source`, on `gpu` if there is one, else on the host; there on return. It
/// counts as borrowed memory, so that no output aliases it. `source` is on the host or on `gpu`.
StoragePtr clone_buffer(const Storage& source, CudaDevice* gpu);

}  // namespace cudaexec
