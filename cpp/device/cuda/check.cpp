#include "device/cuda/check.h"

#include "base/str.h"

namespace cudaexec::cuda {
namespace {

ErrorKind kind_of(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorKind::kOutOfMemory;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      return ErrorKind::kTarget;
    case CUDA_ERROR_NOT_SUPPORTED:
      return ErrorKind::kNotSupported;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return ErrorKind::kDevice;
    default:
      break;
  }
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    return ErrorKind::kCapture;
  }
  return ErrorKind::kInternal;
}

const char* advice_for(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
      return "; a kernel launched earlier failed (an index out of range, for example) and CUDA "
             "cannot "
             "be used in this process any more: start a new one";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return "; the code was compiled for other GPUs: export for this one, or with PTX";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; the PTX in the file needs a newer driver: install one, or export for this GPU";
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; free memory on the GPU, set a limit for other programs, or use smaller inputs";
    default:
      return "";
  }
}

}  // namespace

std::string describe_result(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (const DriverApi* api = driver_if_initialised(); api != nullptr) {
    api->cuGetErrorName(result, &name);
    api->cuGetErrorString(result, &text);
  }
  return str(name != nullptr ? name : "CUDA error", " (", static_cast<unsigned>(result), ")",
             text != nullptr ? ": " : "", text != nullptr ? text : "");
}

void throw_failure(CUresult result, const char* call, const char* file, int line, size_t nbytes) {
  std::string message;
  if (nbytes != 0) message = str("cannot allocate ", nbytes, " bytes: ");
  message +=
      str(describe_result(result), " from ", call, " at ", file, ":", line, advice_for(result));
  switch (kind_of(result)) {
    case ErrorKind::kOutOfMemory:
      throw OutOfMemory(message);
    case ErrorKind::kTarget:
      throw TargetError(message);
    case ErrorKind::kNotSupported:
      throw NotSupported(message);
    case ErrorKind::kDevice:
      throw DeviceError(message);
    case ErrorKind::kCapture:
      if (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) throw CaptureBroken(message);
      throw CaptureError(message);
    default:
      throw InternalError(message);
  }
}

}  // namespace cudaexec::cuda
