// The part of NVIDIA's cuBLASLt interface that we use, declared here so that the build needs no
// header of it and programs link nothing: cublas.cpp opens the library when a program needs it.
// tests/cuda_fake/abi_check.cpp compares it with NVIDIA's header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/driver_abi.h"

namespace cudaexec::gpu::cublas {

using Status = int32_t;
inline constexpr Status kSuccess = 0;
inline constexpr Status kNotInitialised = 1;
inline constexpr Status kAllocFailed = 3;
inline constexpr Status kInvalidValue = 7;
inline constexpr Status kArchMismatch = 8;
inline constexpr Status kExecutionFailed = 13;
inline constexpr Status kInternalError = 14;
inline constexpr Status kNotSupported = 15;

/// cudaDataType_t
enum class DataType : int32_t { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14 };
/// cublasComputeType_t: no TensorFloat-32, 16-bit factors add up in float32.
enum class ComputeType : int32_t { kFloat32 = 68, kFloat64 = 70 };
enum class Operation : int32_t { kNone = 0, kTranspose = 1 };

// Attributes; the comment says what a value is.
inline constexpr int32_t kLayoutBatchCount = 5;   // int32
inline constexpr int32_t kLayoutBatchStride = 6;  // int64, elements
inline constexpr int32_t kMatmulTransA = 3;       // Operation
inline constexpr int32_t kMatmulTransB = 4;       // Operation
inline constexpr int32_t kMatmulEpilogue = 7;     // uint32
inline constexpr int32_t kMatmulBiasPointer = 8;  // const void*
inline constexpr int32_t kPreferWorkspace = 1;    // uint64, bytes at most
inline constexpr int32_t kPreferReductions = 3;   // uint32, mask
inline constexpr int32_t kPreferAlignmentA = 5;   // uint32, bytes; B, C and D follow
inline constexpr uint32_t kEpilogueDefault = 1;
inline constexpr uint32_t kEpilogueRelu = 2;
inline constexpr uint32_t kEpilogueBias = 4;
inline constexpr uint32_t kEpilogueGelu = 32;
/// Partial sums are kept in the compute type, never in a 16-bit result.
inline constexpr uint32_t kExactReductions = 1 | 2;

struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {
  Algorithm algorithm;
  size_t workspace_nbytes;
  Status state;
  float waves;
  int32_t reserved[4];
};

using Handle = struct HandleOpaque*;
using MatmulDesc = struct MatmulDescOpaque*;
using Layout = struct LayoutOpaque*;
using Preference = struct PreferenceOpaque*;

// X(name without "cublasLt", (parameters))
// clang-format off
#define CUDAEXEC_CUBLAS_ENTRIES(X)                                                                 \
  X(Create, (Handle* handle))                                                                      \
  X(Destroy, (Handle handle))                                                                      \
  X(Matmul, (Handle handle, MatmulDesc matmul, const void* alpha, const void* a, Layout a_layout,      \
             const void* b, Layout b_layout, const void* beta, const void* c, Layout c_layout,     \
             void* d, Layout d_layout, const Algorithm* algorithm, void* workspace,                \
             size_t workspace_nbytes, ::CUstream_st* stream))                                      \
  X(MatmulAlgoGetHeuristic, (Handle handle, MatmulDesc matmul, Layout a, Layout b, Layout c, Layout d, \
                             Preference preference, int wanted, Heuristic* results, int* found))   \
  X(MatrixLayoutCreate, (Layout* layout, DataType type, uint64_t rows, uint64_t cols,              \
                         int64_t leading))                                                         \
  X(MatrixLayoutDestroy, (Layout layout))                                                          \
  X(MatrixLayoutSetAttribute, (Layout layout, int32_t attribute, const void* value,                \
                               size_t nbytes))                                                     \
  X(MatmulDescCreate, (MatmulDesc* matmul, ComputeType compute, DataType scale))                       \
  X(MatmulDescDestroy, (MatmulDesc matmul))                                                            \
  X(MatmulDescSetAttribute, (MatmulDesc matmul, int32_t attribute, const void* value, size_t nbytes))  \
  X(MatmulPreferenceCreate, (Preference* preference))                                              \
  X(MatmulPreferenceDestroy, (Preference preference))                                              \
  X(MatmulPreferenceSetAttribute, (Preference preference, int32_t attribute, const void* value,    \
                                   size_t nbytes))
// clang-format on

}  // namespace cudaexec::gpu::cublas
