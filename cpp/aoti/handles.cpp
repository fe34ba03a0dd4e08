// Handles of generated code: Tensors in nodes that each thread recycles. No lock and no shared
// counter on the way, since generated code makes and frees several handles per call.
#include <atomic>
#include <new>
#include <utility>

#include "aoti/abi.h"

namespace cudaexec {
namespace {

constexpr int kMaxFree = 256;

union Node {
  Node* next;
  alignas(Tensor) unsigned char bytes[sizeof(Tensor)];
};

// Of one thread; given to another thread when its thread ends.
struct ThreadHandles {
  Node* free = nullptr;
  int num_free = 0;
  std::atomic<int64_t> live{
      0};  // written by the owner alone; negative where others' handles are freed
  std::atomic<bool> in_use{true};
  ThreadHandles* next = nullptr;  // in the list of all
};

std::atomic<ThreadHandles*> all_threads{nullptr};
std::atomic<int64_t> live_elsewhere{0};  // handles of threads that are past their own cleanup

constinit thread_local ThreadHandles* current __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local bool ended __attribute__((tls_model("initial-exec"))) = false;

struct ThreadEnd {
  ~ThreadEnd() {
    ended = true;
    ThreadHandles* mine = current;
    current = nullptr;
    while (mine->free != nullptr) {
      Node* node = mine->free;
      mine->free = node->next;
      ::operator delete(node);
    }
    mine->num_free = 0;
    mine->in_use.store(false, std::memory_order_release);
  }
};

// Null once the thread is past its cleanup or where there is no memory for the record.
[[gnu::noinline]] ThreadHandles* start_thread() noexcept {
  if (ended) return nullptr;
  ThreadHandles* mine = all_threads.load(std::memory_order_acquire);
  for (; mine != nullptr; mine = mine->next) {
    bool expected = false;
    if (mine->in_use.compare_exchange_strong(expected, true, std::memory_order_acquire)) break;
  }
  if (mine == nullptr) {
    mine = new (std::nothrow) ThreadHandles;
    if (mine == nullptr) return nullptr;
    mine->next = all_threads.load(std::memory_order_relaxed);
    while (!all_threads.compare_exchange_weak(mine->next, mine, std::memory_order_release)) {
    }
  }
  current = mine;
  static thread_local ThreadEnd at_end;
  (void)at_end;
  return mine;
}

inline ThreadHandles* thread_handles() noexcept {
  return current != nullptr ? current : start_thread();
}

inline void count(ThreadHandles* mine, int64_t change) noexcept {
  if (mine == nullptr) {
    live_elsewhere.fetch_add(change, std::memory_order_relaxed);
  } else {
    mine->live.store(mine->live.load(std::memory_order_relaxed) + change,
                     std::memory_order_relaxed);
  }
}

}  // namespace

AtenTensorHandle new_handle(Tensor tensor) {
  ThreadHandles* mine = thread_handles();
  void* place = nullptr;
  if (mine != nullptr && mine->free != nullptr) {
    Node* node = mine->free;
    mine->free = node->next;
    --mine->num_free;
    place = node;
  } else {
    place = ::operator new(sizeof(Node));  // freed by delete_handle(), across the C interface
  }
  count(mine, 1);
  return handle_from(::new (place) Tensor(std::move(tensor)));
}

void delete_handle(AtenTensorHandle handle) noexcept {
  if (handle == nullptr) return;
  Tensor* tensor = &tensor_from(handle);
  tensor->~Tensor();
  ThreadHandles* mine = thread_handles();
  count(mine, -1);
  Node* node = reinterpret_cast<Node*>(tensor);
  if (mine == nullptr || mine->num_free >= kMaxFree) {
    ::operator delete(node);
    return;
  }
  node->next = mine->free;
  mine->free = node;
  ++mine->num_free;
}

int64_t live_handles() noexcept {
  int64_t live = live_elsewhere.load(std::memory_order_relaxed);
  for (ThreadHandles* each = all_threads.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    live += each->live.load(std::memory_order_relaxed);
  }
  return live;
}

}  // namespace cudaexec
