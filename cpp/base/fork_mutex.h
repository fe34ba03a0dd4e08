// Locks and counts in a forked child. The threads that held a lock in the parent do not exist
// there: it would stay locked for ever, around data that was left half changed. So fork() waits
// shortly for these locks, and what is still held then is made anew in the child and remembered.
#pragma once

#include <mutex>

#include "base/export.h"

namespace cudaexec {

/// Told of every fork() of the process while it lives.
class CUDAEXEC_API ForkMember {
 public:
  ForkMember(const ForkMember&) = delete;
  ForkMember& operator=(const ForkMember&) = delete;

 protected:
  ForkMember() noexcept;
  ~ForkMember();

 private:
  friend struct ForkMembers;
  /// In the thread that forks, before it does. False: somebody is in the middle of something.
  virtual bool hold() noexcept { return true; }
  /// Afterwards, in the parent; after hold() was true.
  virtual void release() noexcept {}
  /// Afterwards, in the child. `held`: hold() was true.
  virtual void in_child(bool held) noexcept = 0;

  ForkMember* previous_ = nullptr;
  ForkMember* next_ = nullptr;
  bool held_ = false;
};

/// A std::mutex that a forked child finds free.
class CUDAEXEC_API ForkMutex final : public ForkMember {
 public:
  ForkMutex() noexcept = default;
  ~ForkMutex() = default;

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  /// Whether another thread of the parent held it when this process was forked off, so that what it
  /// guards may be half changed. Call with the lock held.
  [[nodiscard]] bool interrupted() const noexcept { return interrupted_; }
  /// What it guards is whole again. Call with the lock held.
  void mend() noexcept { interrupted_ = false; }

 private:
  bool hold() noexcept override { return mutex_.try_lock(); }
  void release() noexcept override { mutex_.unlock(); }
  void in_child(bool held) noexcept override;

  std::mutex mutex_;
  bool interrupted_ = false;
};

}  // namespace cudaexec
