// Giving up the GIL around core calls. The GIL is the outermost lock: nothing here runs while a
// lock of the core is held, and code between construction and destruction touches no Python object.
#pragma once

#include <Python.h>

#include <utility>

namespace cudaexec::python {

/// Around binding code that may run Python code (an import, `__dlpack__`, a constructor): the
/// interpreter does not begin to exit meanwhile, because a thread that loses the GIL to an exiting
/// interpreter is ended in the middle of our C++ frames. With the GIL held; nests. A thread that
/// comes when the interpreter has begun to exit sleeps until the process ends.
class BindingScope {
 public:
  BindingScope();
  ~BindingScope();
  BindingScope(const BindingScope&) = delete;
  BindingScope& operator=(const BindingScope&) = delete;
};

/// Releases the GIL for its lifetime. Once the interpreter has begun to exit, other threads than
/// the exiting one never get it back: taking it then would end the thread in the middle of C++
/// frames, and the process with it. They sleep until the process ends.
class GilRelease {
 public:
  GilRelease() noexcept;
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
  int depth_;  // of BindingScopes that this interrupts
};

/// Runs `function` without the GIL (a factory for py::init too: a call_guard there would still hold
/// when pybind11 notes the new object in its table) and returns its result; it takes and returns
/// plain C++ values.
template <typename Function>
decltype(auto) without_gil(Function&& function) {
  const GilRelease release;
  return std::forward<Function>(function)();
}

/// Drops a reference. A thread without the GIL leaves that to the next call of the binding, and to
/// nobody once the interpreter exits.
void drop_reference(PyObject* object) noexcept;

/// Closes the gate; called once by `atexit`, with the GIL held. Returns when no other thread is in
/// a BindingScope or on its way back into one.
void close_exit_gate();

}  // namespace cudaexec::python
