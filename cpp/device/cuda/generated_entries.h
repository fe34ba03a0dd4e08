// The names of the CUDA runtime that generated code leaves undefined (it has no DT_NEEDED for
// libcudart): X(name, (parameters)). Enumerations of the runtime are ints here; its error numbers
// are the driver's. A test compares the list with cuda_runtime_api.h.
#pragma once

#include <cstddef>

#include "device/cuda/driver_abi.h"

namespace cudaexec::cuda {

/// cudaMemcpyKind
enum CopyKind : int {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kByAddress = 4,
};

/// cudaMemoryType
enum RuntimeMemoryType : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };

inline constexpr int kInvalidRuntimeDevice = -2;  // cudaInvalidDeviceId

/// The part of cudaPointerAttributes that CUDA 12 and 13 share; 13 appends reserved words.
struct RuntimePointerAttributes {
  RuntimeMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

}  // namespace cudaexec::cuda

// clang-format off
#define CUDAEXEC_RUNTIME_ENTRIES(X)                                                               \
  X(cudaGetDevice, (int* device))                                                                 \
  X(cudaSetDevice, (int device))                                                                  \
  X(cudaGetLastError, ())                                                                         \
  X(cudaMalloc, (void** data, size_t nbytes))                                                     \
  X(cudaFree, (void* data))                                                                       \
  X(cudaMemcpy, (void* dst, const void* src, size_t nbytes, CopyKind kind))                       \
  X(cudaMemcpyAsync, (void* dst, const void* src, size_t nbytes, CopyKind kind, CUstream stream)) \
  X(cudaPointerGetAttributes, (RuntimePointerAttributes* attributes, const void* data))           \
  X(cudaStreamCreateWithFlags, (CUstream* stream, unsigned flags))                                \
  X(cudaStreamDestroy, (CUstream stream))                                                         \
  X(cudaStreamSynchronize, (CUstream stream))                                                     \
  X(cudaEventCreate, (CUevent* event))                                                            \
  X(cudaEventCreateWithFlags, (CUevent* event, unsigned flags))                                   \
  X(cudaEventDestroy, (CUevent event))                                                            \
  X(cudaEventRecord, (CUevent event, CUstream stream))                                            \
  X(cudaEventQuery, (CUevent event))                                                              \
  X(cudaEventSynchronize, (CUevent event))

// And one that returns text: const char* cudaGetErrorString(error).

/// Driver entries that generated code finds in our library before libcuda.
#define CUDAEXEC_INTERPOSED_ENTRIES(X)                                                            \
  X(cuModuleLoadData, (CUmodule* module, const void* image))                                      \
  X(cuModuleUnload, (CUmodule module))                                                            \
  X(cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))               \
  X(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))         \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                     unsigned block_x, unsigned block_y, unsigned block_z,                        \
                     unsigned shared_nbytes, CUstream stream, void** parameters, void** extra))   \
  X(cuGetErrorString, (CUresult error, const char** text))
// clang-format on
