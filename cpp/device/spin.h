// Waiting for another thread: a short spin, then sleep in the kernel.
#pragma once

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace cudaexec {

/// Returns at once if `word` no longer holds `expected`; may return early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
/// Only passes the address on: the word may be gone by now.
inline void futex_wake(std::atomic<uint32_t>* word, int threads) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

inline int64_t now_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

/// Whether `done()` came true within `budget_ns`.
template <typename Done>
bool spin_until(const Done& done, int64_t budget_ns) noexcept {
  if (done()) return true;
  if (budget_ns <= 0) return false;
  const int64_t end = now_ns() + budget_ns;
  do {
    for (int i = 0; i < 32; ++i) {
      _mm_pause();
      if (done()) return true;
    }
  } while (now_ns() < end);
  return false;
}

/// A lock for a few instructions; a forked child may reset it.
class SpinLock {
 public:
  explicit SpinLock(std::atomic<uint32_t>& word) noexcept : word_(word) {
    uint32_t expected = 0;
    while (!word_.compare_exchange_weak(expected, 1, std::memory_order_acquire)) {
      expected = 0;
      if (!spin_until([&] { return word_.load(std::memory_order_relaxed) == 0; }, 2000)) {
        ::syscall(SYS_sched_yield);
      }
    }
  }
  ~SpinLock() { word_.store(0, std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  std::atomic<uint32_t>& word_;
};

}  // namespace cudaexec
