#include "ops/cuda/cublas_library.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/driver.h"
#include "ops/cuda/library_search.h"

namespace cudaexec::gpu::cublas {
namespace {

constexpr int kDriver13 = 13000;  // cuBLAS 13 runs on drivers from CUDA 13.0 on

LibraryRequest request() {
  LibraryRequest wanted;
  if (cuda::driver().version >= kDriver13) wanted.names.emplace_back("libcublasLt.so.13");
  wanted.names.emplace_back("libcublasLt.so.12");
  wanted.folders = {"nvidia/cu13/lib", "nvidia/cublas/lib"};
  wanted.variable = "CUDAEXEC_CUBLAS";
  wanted.advice = cuda::driver().version >= kDriver13 ? "pip install nvidia-cublas"
                                                      : "pip install nvidia-cublas-cu12";
  return wanted;
}

const char* name_of(Status status) {
  switch (status) {
    case kNotInitialised:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kAllocFailed:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kArchMismatch:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kInternalError:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unknown status";
  }
}

}  // namespace

Library::~Library() {
  if (handle != nullptr) ::dlclose(handle);
}

std::unique_ptr<Library> open_library() {
  auto library = std::make_unique<Library>();
  OpenedLibrary opened = open_optional_library(request());
  library->handle = opened.handle;
  library->path = std::move(opened.path);
  std::string missing;
#define CUDAEXEC_CUBLAS_FIND(name, parameters)                                            \
  library->api.name =                                                                     \
      reinterpret_cast<Status(*) parameters>(::dlsym(library->handle, "cublasLt" #name)); \
  if (library->api.name == nullptr) missing += " cublasLt" #name;
  CUDAEXEC_CUBLAS_ENTRIES(CUDAEXEC_CUBLAS_FIND)
#undef CUDAEXEC_CUBLAS_FIND
  if (!missing.empty()) {
    throw NotSupported(str(library->path, " is no cuBLASLt 12 or 13, it lacks:", missing,
                           "; pip install nvidia-cublas, or set CUDAEXEC_CUBLAS to the path of "
                           "libcublasLt.so.13"));
  }
  return library;
}

void check(const Library& library, Status status, const char* call) {
  if (status == kSuccess) return;
  const std::string message =
      str(call, " failed: ", name_of(status), " (", status, "), library ", library.path);
  switch (status) {
    case kAllocFailed:
      throw OutOfMemory(str(message, "; free GPU memory or use smaller inputs"));
    case kNotSupported:
      throw NotSupported(message);
    case kArchMismatch:
      throw NotSupported(str(message, ": it has no code for this GPU; install another release"));
    case kNotInitialised:
    case kExecutionFailed:
      throw DeviceError(str(message, "; work put on the GPU before may have failed"));
    default:
      throw InternalError(message);
  }
}

}  // namespace cudaexec::gpu::cublas
