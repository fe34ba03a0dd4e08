// Definitions of the names in generated_entries.h, exported for generated libraries, which bind to
// this library before any other. Nothing of ours calls them by name: another library of the process
// may export the same names to everybody (torch brings the real CUDA runtime).
#include "device/cuda/generated_entries.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/generated_call.h"

namespace {

using namespace cudaexec;
using namespace cudaexec::cuda;

thread_local CUresult last_runtime_error = CUDA_SUCCESS;  // what cudaGetLastError() returns

CUresult note(CUresult result, const char* call, size_t nbytes = 0) noexcept {
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) [[unlikely]] {
    if (GeneratedCall* scope = GeneratedCall::current(); scope != nullptr) {
      scope->note_failure(result, call, nbytes);
    }
  }
  return result;
}

CUresult note_runtime(CUresult result, const char* call, size_t nbytes = 0) noexcept {
  if (result != CUDA_SUCCESS) last_runtime_error = result;
  return note(result, call, nbytes);
}

/// Runs `body(api)`, which returns a CUresult; exceptions become the nearest number.
template <typename Body>
CUresult fenced(const Body& body) noexcept {
  try {
    return body(driver());
  } catch (const OutOfMemory&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const DeviceError&) {
    return driver_if_initialised() == nullptr ? CUDA_ERROR_NOT_INITIALIZED
                                              : CUDA_ERROR_INVALID_DEVICE;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// As the runtime does: a thread without a context gets device 0's.
void need_context(const DriverApi& api) {
  CUcontext context = nullptr;
  if (api.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == nullptr) {
    api.cuCtxSetCurrent(cuda_device(0).context());
  }
}

template <typename Body>
CUresult in_context(const Body& body) noexcept {
  return fenced([&](const DriverApi& api) {
    need_context(api);
    return body(api);
  });
}

CUresult copy(const DriverApi& api, void* dst, const void* src, size_t nbytes, CopyKind kind) {
  switch (kind) {
    case kHostToDevice:
      return api.cuMemcpyHtoD(cu_pointer(dst), src, nbytes);
    case kDeviceToHost:
      return api.cuMemcpyDtoH(dst, cu_pointer(src), nbytes);
    case kDeviceToDevice:
      return api.cuMemcpyDtoD(cu_pointer(dst), cu_pointer(src), nbytes);
    default:
      return api.cuMemcpy(cu_pointer(dst), cu_pointer(src), nbytes);
  }
}

CUresult copy_async(const DriverApi& api, void* dst, const void* src, size_t nbytes, CopyKind kind,
                    CUstream stream) {
  switch (kind) {
    case kHostToDevice:
      return api.cuMemcpyHtoDAsync(cu_pointer(dst), src, nbytes, stream);
    case kDeviceToHost:
      return api.cuMemcpyDtoHAsync(dst, cu_pointer(src), nbytes, stream);
    case kDeviceToDevice:
      return api.cuMemcpyDtoDAsync(cu_pointer(dst), cu_pointer(src), nbytes, stream);
    default:
      return api.cuMemcpyAsync(cu_pointer(dst), cu_pointer(src), nbytes, stream);
  }
}

CUresult pointer_attributes(const DriverApi& api, RuntimePointerAttributes& attributes,
                            const void* data) {
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  void* device_pointer = nullptr;
  void* host_pointer = nullptr;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* values[] = {&type, &managed, &ordinal, &device_pointer, &host_pointer};
  const CUresult result = api.cuPointerGetAttributes(5, asked, values, cu_pointer(data));
  if (result != CUDA_SUCCESS) return result;
  if (type == 0) {
    attributes = {kUnregistered, kInvalidRuntimeDevice, nullptr, const_cast<void*>(data)};
    return result;
  }
  const RuntimeMemoryType kind =
      managed != 0 ? kManaged : (type == CU_MEMORYTYPE_HOST ? kHost : kDevice);
  attributes = {kind, ordinal, device_pointer, host_pointer};
  return result;
}

}  // namespace

extern "C" {

CUDAEXEC_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const auto body = [&](const DriverApi& api) {
    GeneratedCall* scope = GeneratedCall::current();
    return scope != nullptr ? scope->modules().load(image, module)
                            : api.cuModuleLoadData(module, image);
  };
  return note(fenced(body), __func__);
}

CUDAEXEC_API CUresult cuModuleUnload(CUmodule module) {
  const auto body = [&](const DriverApi& api) {
    GeneratedCall* scope = GeneratedCall::current();
    if (scope != nullptr && scope->modules().unload(module)) return CUDA_SUCCESS;
    return api.cuModuleUnload(module);
  };
  return note(fenced(body), __func__);
}

CUDAEXEC_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return note(
      fenced([&](const DriverApi& api) { return api.cuModuleGetFunction(function, module, name); }),
      __func__);
}

CUDAEXEC_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                         int value) {
  const auto body = [&](const DriverApi& api) {
    return api.cuFuncSetAttribute(function, attribute, value);
  };
  return note(fenced(body), __func__);
}

CUDAEXEC_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_nbytes, CUstream stream,
                                     void** parameters, void** extra) {
  const auto body = [&](const DriverApi& api) {
    return api.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                              shared_nbytes, stream, parameters, extra);
  };
  return note(fenced(body), __func__);
}

CUDAEXEC_API CUresult cuGetErrorString(CUresult error, const char** text) {
  return fenced([&](const DriverApi& api) { return api.cuGetErrorString(error, text); });
}

CUDAEXEC_API CUresult cudaGetDevice(int* device) {
  const auto body = [&](const DriverApi& api) {
    CUcontext context = nullptr;
    *device = 0;
    const CUresult result = api.cuCtxGetCurrent(&context);
    return result != CUDA_SUCCESS || context == nullptr ? result : api.cuCtxGetDevice(device);
  };
  return note_runtime(fenced(body), __func__);
}

CUDAEXEC_API CUresult cudaSetDevice(int device) {
  const auto body = [&](const DriverApi& api) {
    return api.cuCtxSetCurrent(cuda_device(device).context());
  };
  return note_runtime(fenced(body), __func__);
}

CUDAEXEC_API CUresult cudaGetLastError() { return std::exchange(last_runtime_error, CUDA_SUCCESS); }

CUDAEXEC_API const char* cudaGetErrorString(CUresult error) {
  const char* text = nullptr;
  const CUresult result =
      fenced([&](const DriverApi& api) { return api.cuGetErrorString(error, &text); });
  return result == CUDA_SUCCESS && text != nullptr ? text : "unrecognized error code";
}

CUDAEXEC_API CUresult cudaMalloc(void** data, size_t nbytes) {
  const auto body = [&](const DriverApi& api) {
    CUdeviceptr address = 0;
    const CUresult result = nbytes == 0 ? CUDA_SUCCESS : api.cuMemAlloc(&address, nbytes);
    *data = reinterpret_cast<void*>(address);
    return result;
  };
  return note_runtime(in_context(body), __func__, nbytes);
}

CUDAEXEC_API CUresult cudaFree(void* data) {
  if (data == nullptr) return CUDA_SUCCESS;
  return note_runtime(
      in_context([&](const DriverApi& api) { return api.cuMemFree(cu_pointer(data)); }), __func__);
}

CUDAEXEC_API CUresult cudaMemcpy(void* dst, const void* src, size_t nbytes, CopyKind kind) {
  if (nbytes == 0) return CUDA_SUCCESS;
  return note_runtime(
      in_context([&](const DriverApi& api) { return copy(api, dst, src, nbytes, kind); }),
      __func__);
}

CUDAEXEC_API CUresult cudaMemcpyAsync(void* dst, const void* src, size_t nbytes, CopyKind kind,
                                      CUstream stream) {
  if (nbytes == 0) return CUDA_SUCCESS;
  const auto body = [&](const DriverApi& api) {
    return copy_async(api, dst, src, nbytes, kind, stream);
  };
  return note_runtime(in_context(body), __func__);
}

CUDAEXEC_API CUresult cudaPointerGetAttributes(RuntimePointerAttributes* attributes,
                                               const void* data) {
  const auto body = [&](const DriverApi& api) {
    return pointer_attributes(api, *attributes, data);
  };
  return note_runtime(fenced(body), __func__);
}

CUDAEXEC_API CUresult cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
  return note_runtime(
      in_context([&](const DriverApi& api) { return api.cuStreamCreate(stream, flags); }),
      __func__);
}

CUDAEXEC_API CUresult cudaStreamDestroy(CUstream stream) {
  return note_runtime(fenced([&](const DriverApi& api) { return api.cuStreamDestroy(stream); }),
                      __func__);
}

CUDAEXEC_API CUresult cudaStreamSynchronize(CUstream stream) {
  return note_runtime(
      in_context([&](const DriverApi& api) { return api.cuStreamSynchronize(stream); }), __func__);
}

CUDAEXEC_API CUresult cudaEventCreate(CUevent* event) {
  return note_runtime(in_context([&](const DriverApi& api) { return api.cuEventCreate(event, 0); }),
                      __func__);
}

CUDAEXEC_API CUresult cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
  return note_runtime(
      in_context([&](const DriverApi& api) { return api.cuEventCreate(event, flags); }), __func__);
}

CUDAEXEC_API CUresult cudaEventDestroy(CUevent event) {
  return note_runtime(fenced([&](const DriverApi& api) { return api.cuEventDestroy(event); }),
                      __func__);
}

CUDAEXEC_API CUresult cudaEventRecord(CUevent event, CUstream stream) {
  return note_runtime(
      in_context([&](const DriverApi& api) { return api.cuEventRecord(event, stream); }), __func__);
}

CUDAEXEC_API CUresult cudaEventQuery(CUevent event) {
  return note_runtime(fenced([&](const DriverApi& api) { return api.cuEventQuery(event); }),
                      __func__);
}

CUDAEXEC_API CUresult cudaEventSynchronize(CUevent event) {
  return note_runtime(fenced([&](const DriverApi& api) { return api.cuEventSynchronize(event); }),
                      __func__);
}

}  // extern "C"
