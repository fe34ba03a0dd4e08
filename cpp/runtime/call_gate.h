// Counts calls in flight and lets close() wait for them.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fork_mutex.h"

namespace cudaexec {

class CallGate : private ForkMember {
 public:
  CallGate() = default;
  ~CallGate() = default;

  /// False once closed; otherwise leave() must follow.
  [[nodiscard]] bool enter() noexcept {
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) state_.notify_all();
  }
  /// Refuses new calls and returns when those in flight have left. True for the first caller.
  bool close() noexcept {
    const bool first = (state_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed) == 0;
    for (uint32_t now = state_.load(std::memory_order_acquire); now != kClosed;
         now = state_.load(std::memory_order_acquire)) {
      state_.wait(now, std::memory_order_acquire);
    }
    return first;
  }
  [[nodiscard]] bool closed() const noexcept {
    return (state_.load(std::memory_order_acquire) & kClosed) != 0;
  }

 private:
  /// Calls of the parent's other threads are not in flight here, and fork() is not called inside
  /// one.
  void in_child(bool) noexcept override { state_.fetch_and(kClosed, std::memory_order_relaxed); }

  static constexpr uint32_t kClosed = 1u << 31;
  std::atomic<uint32_t> state_{0};
};

}  // namespace cudaexec
