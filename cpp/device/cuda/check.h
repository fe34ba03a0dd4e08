// The one way to call the driver: CUDAEXEC_CU(cuStreamCreate, &stream, flags). A failure becomes a
// typed error that names the call, its place in the source and the driver's reason.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "base/export.h"
#include "device/cuda/driver.h"

#if defined(__FILE_NAME__)
#define CUDAEXEC_FILE __FILE_NAME__
#else
#define CUDAEXEC_FILE __FILE__
#endif

namespace cudaexec::cuda {

/// The driver gave a capture up before this thread did anything wrong in it: another thread called
/// what CUDA forbids during captures.
class CUDAEXEC_API CaptureBroken : public CaptureError {
 public:
  using CaptureError::CaptureError;
};

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument"
CUDAEXEC_API std::string describe_result(CUresult result);

/// Throws the error that `result` stands for: OutOfMemory, CaptureError, CaptureBroken, TargetError
/// (code that this GPU or driver cannot run), NotSupported, DeviceError (the device or its context
/// is unusable), else InternalError. `nbytes`: the size of a failed allocation, 0 if the call
/// allocates none.
[[noreturn]] CUDAEXEC_API void throw_failure(CUresult result, const char* call, const char* file,
                                             int line, size_t nbytes = 0);

inline void check(CUresult result, const char* call, const char* file, int line,
                  size_t nbytes = 0) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_failure(result, call, file, line, nbytes);
}

}  // namespace cudaexec::cuda

#define CUDAEXEC_CU(entry, ...)                                          \
  ::cudaexec::cuda::check(::cudaexec::cuda::driver().entry(__VA_ARGS__), \
                          #entry "(" #__VA_ARGS__ ")", CUDAEXEC_FILE, __LINE__)

/// As above for a call that allocates `nbytes` bytes.
#define CUDAEXEC_CU_ALLOC(nbytes, entry, ...)                            \
  ::cudaexec::cuda::check(::cudaexec::cuda::driver().entry(__VA_ARGS__), \
                          #entry "(" #__VA_ARGS__ ")", CUDAEXEC_FILE, __LINE__, (nbytes))
