#include "python/gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"

namespace cudaexec::python {
namespace {

thread_local int depth = 0;  // of this thread's BindingScopes

// Threads announce themselves before they look at `closed`, and the closer sets `closed` before it
// looks for announced threads: so each thread either sees the closed gate or is waited for.
struct ExitGate {
  std::atomic<bool> closed{false};
  std::atomic<int> inside{0};  // threads in binding code, or waiting for the GIL to go on with it
  unsigned long closer = 0;

  // In a forked child there is one thread.
  ExitGate() noexcept {
    pthread_atfork(nullptr, nullptr, [] { instance().inside.store(depth > 0 ? 1 : 0); });
  }

  static ExitGate& instance() noexcept {
    static ExitGate gate;
    return gate;
  }
};

// Constructed when the extension is loaded, so the path below only reads it.
ExitGate& exit_gate = ExitGate::instance();

[[noreturn]] void park() noexcept {
  for (;;) pause();
}

// References that threads without the GIL could not drop.
struct Orphans {
  std::atomic<bool> any{false};
  ForkMutex mutex;
  std::vector<PyObject*> objects;
};
Orphans& orphans = *new Orphans;  // deleters may come as late as they like

void drop_orphans() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(orphans.mutex);
    objects.swap(orphans.objects);
    orphans.any.store(false);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace

BindingScope::BindingScope() {
  if (depth++ > 0) return;
  exit_gate.inside.fetch_add(1);
  if (exit_gate.closed.load() && PyThread_get_thread_ident() != exit_gate.closer) [[unlikely]] {
    exit_gate.inside.fetch_sub(1);
    PyEval_SaveThread();
    park();
  }
  if (orphans.any.load(std::memory_order_relaxed)) [[unlikely]]
    drop_orphans();
}

BindingScope::~BindingScope() {
  if (--depth == 0) exit_gate.inside.fetch_sub(1, std::memory_order_release);
}

GilRelease::GilRelease() noexcept : depth_(std::exchange(depth, 0)) {
  if (depth_ > 0) exit_gate.inside.fetch_sub(1, std::memory_order_release);
  state_ = PyEval_SaveThread();
}

GilRelease::~GilRelease() {
  exit_gate.inside.fetch_add(1);
  if (exit_gate.closed.load() && PyThread_get_thread_ident() != exit_gate.closer) [[unlikely]] {
    exit_gate.inside.fetch_sub(1);
    park();
  }
  PyEval_RestoreThread(state_);
  depth = depth_;
  if (depth_ == 0) exit_gate.inside.fetch_sub(1, std::memory_order_release);
}

void drop_reference(PyObject* object) noexcept {
  if (Py_IsInitialized() == 0) return;
  if (PyGILState_Check() != 0) {
    Py_DECREF(object);
    return;
  }
  try {
    const std::lock_guard lock(orphans.mutex);
    orphans.objects.push_back(object);
    orphans.any.store(true);
  } catch (const std::bad_alloc&) {
    return;  // kept for good
  }
}

void close_exit_gate() {
  exit_gate.closer = PyThread_get_thread_ident();
  exit_gate.closed.store(true);
  const int own = depth > 0 ? 1 : 0;
  while (exit_gate.inside.load() > own) {
    Py_BEGIN_ALLOW_THREADS;
    usleep(50);
    Py_END_ALLOW_THREADS;
  }
}

}  // namespace cudaexec::python
