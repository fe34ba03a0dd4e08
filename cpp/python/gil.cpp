#include "python/gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace cudaexec::python {
namespace {

// Threads announce themselves before they look at `closed`, and the closer sets `closed` before it
// looks for announced threads: so each thread either sees the closed gate or is waited for.
struct ExitGate {
  std::atomic<bool> closed{false};
  std::atomic<int> entering{0};
  unsigned long closer = 0;

  // In a forked child the threads that were on their way in do not exist.
  ExitGate() noexcept {
    pthread_atfork(nullptr, nullptr, [] { instance().entering.store(0); });
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

GilRelease::~GilRelease() {
  exit_gate.entering.fetch_add(1);
  if (exit_gate.closed.load() && PyThread_get_thread_ident() != exit_gate.closer) [[unlikely]] {
    exit_gate.entering.fetch_sub(1);
    park();
  }
  PyEval_RestoreThread(state_);
  exit_gate.entering.fetch_sub(1, std::memory_order_relaxed);
}

void close_exit_gate() {
  exit_gate.closer = PyThread_get_thread_ident();
  exit_gate.closed.store(true);
  while (exit_gate.entering.load() > 0) {
    Py_BEGIN_ALLOW_THREADS;
    usleep(50);
    Py_END_ALLOW_THREADS;
  }
}

}  // namespace cudaexec::python
