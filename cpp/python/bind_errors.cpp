#include "python/bind_errors.h"

#include <cxxabi.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "base/cleanup_report.h"
#include "base/path_error.h"
#include "base/str.h"
#include "device/cuda/driver.h"
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

namespace {

/// An instance with `errno`, `strerror` and `filename`, of a class that is also Python's own for a
/// missing file.
void set_file_error(const Error& error) {
  const char* name = error.os_error() == ENOENT ? "MissingFileError" : "FileError";
  const auto text = py::reinterpret_steal<py::object>(message_object(error.what()));
  const py::object cls = py::module_::import("cudaexec.errors").attr(name);
  const py::object instance = cls(text);
  instance.attr("errno") = error.os_error();
  instance.attr("strerror") = std::generic_category().message(error.os_error());
  if (const auto* about = dynamic_cast<const PathError*>(&error)) {
    instance.attr("filename") =
        py::module_::import("os").attr("fsdecode")(py::bytes(about->path()));
  }
  PyErr_SetObject(cls.ptr(), instance.ptr());
}

void set_core_error(const Error& error) {
  if (error.os_error() == 0) {
    set_python_error(error.kind(), error.what());
    return;
  }
  try {
    set_file_error(error);
  } catch (py::error_already_set& failure) {
    failure.restore();
  }
}

}  // namespace

void set_python_error_from_current_exception() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const Error& error) {
    set_core_error(error);
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

void throw_from_pending_error(ErrorKind kind, const std::string& message) {
  if (PyErr_Occurred() == nullptr) throw Error(kind, message);
  py::error_already_set error;
  throw_from_python_error(error, kind, message);
}

void warn_of_cleanup_failures() {
  CleanupReports reports = take_cleanup_reports();
  if (cuda::is_forked_child()) return;  // nothing of the GPU can be given back there
  if (reports.dropped > 0) {
    reports.messages.push_back(str(reports.dropped, " more failures while freeing resources"));
  }
  const py::object category = py::module_::import("cudaexec.errors").attr("CudaexecWarning");
  for (const std::string& message : reports.messages) {
    const auto text = py::reinterpret_steal<py::object>(message_object(message.c_str()));
    const char* utf8 = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
    if (utf8 == nullptr || PyErr_WarnEx(category.ptr(), utf8, 1) != 0) {
      throw py::error_already_set();
    }
  }
}

void register_errors(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      set_core_error(error);
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
