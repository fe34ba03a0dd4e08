// The exception hierarchy. The core throws these and nothing else; the binding maps each kind to
// the Python class of the same name. A message says what, where, expected, found, and what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/export.h"

namespace cudaexec {

enum class ErrorKind : int32_t {
  kInternal = 0,  // a defect of ours or of generated code
  kFormat,        // a file is damaged or not what it claims to be
  kVersion,       // a file needs another version of cudaexec
  kTarget,        // no code variant fits this machine
  kWeights,       // weights missing, damaged or of another model
  kInput,         // wrong number, name or structure of inputs
  kShape,         // wrong rank, size, stride, or a broken guard
  kDtype,         // wrong element type
  kDevice,        // wrong or unavailable device
  kOutOfMemory,   // an allocation failed or a limit was reached
  kNotSupported,  // a valid request that this build or program cannot serve
  kCapture,       // an operation that cannot run inside a CUDA graph capture
  kContextFull,   // the KV cache has no room for more tokens
  kSessionBusy,   // a session is in use by another call
  kClosed,        // the object was closed
  kExport,        // export failed
  kFile,          // the operating system refused a file operation
};

/// ExecuTorch's number for the kind of error (executorch runtime/core/error.h), shown as `.code`.
CUDAEXEC_API int32_t executorch_code(ErrorKind kind) noexcept;

/// The Python class name, e.g. "FormatError".
CUDAEXEC_API const char* error_class_name(ErrorKind kind) noexcept;

class CUDAEXEC_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, int os_error = 0)
      : std::runtime_error(message), kind_(kind), os_error_(os_error) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] int32_t code() const noexcept { return executorch_code(kind_); }
  /// The `errno` of a refused file operation; 0 where there is none.
  [[nodiscard]] int os_error() const noexcept { return os_error_; }

 private:
  ErrorKind kind_;
  int os_error_;
};

template <ErrorKind Kind>
class CUDAEXEC_API ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message, int os_error = 0) : Error(Kind, message, os_error) {}
};

using InternalError = ErrorOf<ErrorKind::kInternal>;
using FormatError = ErrorOf<ErrorKind::kFormat>;
using VersionError = ErrorOf<ErrorKind::kVersion>;
using TargetError = ErrorOf<ErrorKind::kTarget>;
using WeightsError = ErrorOf<ErrorKind::kWeights>;
using InputError = ErrorOf<ErrorKind::kInput>;
using ShapeError = ErrorOf<ErrorKind::kShape>;
using DtypeError = ErrorOf<ErrorKind::kDtype>;
using DeviceError = ErrorOf<ErrorKind::kDevice>;
using OutOfMemory = ErrorOf<ErrorKind::kOutOfMemory>;
using NotSupported = ErrorOf<ErrorKind::kNotSupported>;
using CaptureError = ErrorOf<ErrorKind::kCapture>;
using ContextFull = ErrorOf<ErrorKind::kContextFull>;
using SessionBusy = ErrorOf<ErrorKind::kSessionBusy>;
using ClosedError = ErrorOf<ErrorKind::kClosed>;
using ExportError = ErrorOf<ErrorKind::kExport>;
using FileError = ErrorOf<ErrorKind::kFile>;

}  // namespace cudaexec
