// C++ exceptions to Python ones.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "base/error.h"

namespace cudaexec::python {

/// Sets the Python error that belongs to the exception being handled; call it inside `catch (...)`
/// of a function that Python calls directly. A thread that the interpreter is ending goes on
/// ending.
void set_python_error_from_current_exception();

/// Sets an instance of the class of `kind`, with `message`.
void set_python_error(ErrorKind kind, const char* message) noexcept;

/// Throws a cudaexec Error of `kind`: `message`, then the class and first line of `error`.
/// Interrupts and exhausted memory are no matter of inputs: those are thrown on as they are.
[[noreturn]] void throw_from_python_error(pybind11::error_already_set& error, ErrorKind kind,
                                          const std::string& message);

/// As above for a C function of another library that failed: with the Python error that it set, if
/// it did.
[[noreturn]] void throw_from_pending_error(ErrorKind kind, const std::string& message);

/// Warns (CudaexecWarning) of failures that destructors could only queue. Call it where no lock of
/// the core is held. @throws py::error_already_set where warnings are errors.
void warn_of_cleanup_failures();

}  // namespace cudaexec::python
