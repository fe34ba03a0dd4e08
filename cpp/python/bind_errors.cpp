#include "python/bind_errors.h"

#include <cxxabi.h>

#include <array>
#include <cstring>
#include <new>
#include <string>

#include "python/bindings.h"

namespace cudaexec::python {
namespace {

constexpr size_t kKinds = static_cast<size_t>(ErrorKind::kFile) + 1;

/// The class of `kind`, a borrowed reference that is kept for good; RuntimeError if cudaexec.errors
/// itself cannot be imported.
PyObject* error_class(ErrorKind kind) noexcept {
  static std::array<PyObject*, kKinds> classes{};
  PyObject*& found = classes[static_cast<size_t>(kind)];
  if (found != nullptr) return found;
  PyObject* module = PyImport_ImportModule("cudaexec.errors");
  if (module != nullptr) {
    found = PyObject_GetAttrString(module, error_class_name(kind));
    Py_DECREF(module);
  }
  if (found != nullptr) return found;
  PyErr_Clear();
  return PyExc_RuntimeError;
}

/// Messages are UTF-8, but may quote bytes of a damaged file or a path.
PyObject* message_object(const char* message) noexcept {
  return PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)),
                              "backslashreplace");
}

}  // namespace

void set_python_error(ErrorKind kind, const char* message) noexcept {
  PyObject* text = message_object(message);
  if (text == nullptr) return;  // out of memory: that error stands
  PyErr_SetObject(error_class(kind), text);
  Py_DECREF(text);
}

void set_python_error_from_current_exception() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const Error& error) {
    set_python_error(error.kind(), error.what());
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    set_python_error(ErrorKind::kOutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    set_python_error(ErrorKind::kInternal, error.what());
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    set_python_error(ErrorKind::kInternal, "unknown C++ exception");
  }
}

void throw_from_python_error(py::error_already_set& error, ErrorKind kind,
                             const std::string& message) {
  if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw error;
  const std::string text = py::str(error.value());
  const char* class_name = Py_TYPE(error.value().ptr())->tp_name;
  throw Error(kind, message + ": " + class_name + ": " + text.substr(0, text.find('\n')));
}

void register_errors(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      set_python_error(error.kind(), error.what());
    } catch (const std::bad_alloc&) {
      set_python_error(ErrorKind::kOutOfMemory, "out of host memory");
    }
  });
  m.def(
      "_error_codes",
      [] {
        py::dict codes;
        for (size_t i = 0; i < kKinds; ++i) {
          const auto kind = static_cast<ErrorKind>(i);
          codes[error_class_name(kind)] = executorch_code(kind);
        }
        return codes;
      },
      "Class names with their numbers, as the core has them.");
}

}  // namespace cudaexec::python
