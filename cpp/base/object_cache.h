// Memory of small objects that are made and dropped with every call, kept by each thread: no lock,
// and no heap allocation once a thread has some.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace cudaexec {

/// For the operator new and delete of a class, which have to be defined in one library. Memory may
/// be given back by another thread than the one that took it.
template <size_t kNbytes>
class ObjectCache {
 public:
  static void* take() {
    if (list_.first == nullptr) return ::operator new(kNbytes);
    --list_.count;
    return std::exchange(list_.first, list_.first->next);
  }

  static void give(void* memory) noexcept {
    if (list_.count == kMost || ended_) {
      ::operator delete(memory);
      return;
    }
    list_.first = new (memory) Free{list_.first};
    ++list_.count;
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kMost = 0;  // uses after the end are to be found
#else
  static constexpr size_t kMost = 64;
#endif

  struct Free {
    Free* next;
  };
  static_assert(kNbytes >= sizeof(Free));

  struct List {
    Free* first = nullptr;
    size_t count = 0;
    ~List() {
      while (first != nullptr) ::operator delete(std::exchange(first, first->next));
      ended_ = true;  // objects may end later on this thread
    }
  };

  static inline thread_local bool ended_ = false;
  static inline thread_local List list_;
};

}  // namespace cudaexec
