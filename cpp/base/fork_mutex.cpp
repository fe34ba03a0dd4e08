#include "base/fork_mutex.h"

#include <pthread.h>
#include <time.h>

#include <new>

namespace cudaexec {

// Never destroyed: static objects may be members. Its own lock is held from before a fork until
// after it, so no member comes or goes meanwhile.
struct ForkMembers {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ForkMember* first = nullptr;
  bool registered = false;

  /// Holds as many as it can. Waiting for one while others are held could wait for ever, so it lets
  /// go of all and tries again. Gives up after a while: somebody is inside a long call.
  void before() noexcept {
    constexpr int kTries = 400;  // of 50 us and more
    for (int tries = 0;; ++tries) {
      pthread_mutex_lock(&mutex);
      bool all = true;
      for (ForkMember* member = first; member != nullptr; member = member->next_) {
        member->held_ = member->hold();
        all = all && member->held_;
      }
      if (all || tries == kTries) return;
      for (ForkMember* member = first; member != nullptr; member = member->next_) {
        if (member->held_) member->release();
      }
      pthread_mutex_unlock(&mutex);
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
  }

  void in_parent() noexcept {
    for (ForkMember* member = first; member != nullptr; member = member->next_) {
      if (member->held_) member->release();
    }
    pthread_mutex_unlock(&mutex);
  }

  void in_child() noexcept {
    for (ForkMember* member = first; member != nullptr; member = member->next_) {
      member->in_child(member->held_);
    }
    pthread_mutex_unlock(&mutex);
  }

  void add(ForkMember& member) noexcept;
  void remove(ForkMember& member) noexcept;
};

namespace {

constinit ForkMembers members;

}  // namespace

void ForkMembers::add(ForkMember& member) noexcept {
  pthread_mutex_lock(&mutex);
  if (!registered) {
    registered = true;
    pthread_atfork([] { members.before(); }, [] { members.in_parent(); },
                   [] { members.in_child(); });
  }
  member.next_ = first;
  if (first != nullptr) first->previous_ = &member;
  first = &member;
  pthread_mutex_unlock(&mutex);
}

void ForkMembers::remove(ForkMember& member) noexcept {
  pthread_mutex_lock(&mutex);
  if (member.next_ != nullptr) member.next_->previous_ = member.previous_;
  (member.previous_ != nullptr ? member.previous_->next_ : first) = member.next_;
  pthread_mutex_unlock(&mutex);
}

ForkMember::ForkMember() noexcept { members.add(*this); }

ForkMember::~ForkMember() { members.remove(*this); }

void ForkMutex::in_child(bool held) noexcept {
  if (held) {
    mutex_.unlock();
    return;
  }
  interrupted_ = true;
  new (&mutex_) std::mutex;  // the old one's owner is gone; it has nothing to free
}

}  // namespace cudaexec
