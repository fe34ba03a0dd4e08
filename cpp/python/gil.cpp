#include "python/gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

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

}  // namespace

BindingScope::BindingScope() {
  if (depth++ > 0) return;
  exit_gate.inside.fetch_add(1);
  if (!exit_gate.closed.load() || PyThread_get_thread_ident() == exit_gate.closer) [[likely]]
    return;
  exit_gate.inside.fetch_sub(1);
  PyEval_SaveThread();
  park();
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
