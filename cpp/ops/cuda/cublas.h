// Matrix products by NVIDIA's cuBLASLt, opened when a program first needs it. What cuBLAS chooses
// for a product is remembered, with its descriptors, in lanes: one lane (handle and choices) per
// call in flight on a device, so that concurrent streams share nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/cublas_abi.h"
#include "ops/cuda/matmul_layout.h"
#include "ops/op_context.h"

namespace cudaexec::gpu {

/// d[m, n] = alpha * a[m, k] @ b[k, n] + beta * c[m, n] + bias[m], column-major, for each of
/// `batch`. `c` may be `d`; strides from one matrix to the next in elements, 0 for the same one.
struct CublasProduct {
  cublas::DataType type = cublas::DataType::kFloat32;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  ColumnMajor a, b;  // as stored; transposed ones are k x m and n x k
  int64_t c_leading = 0, d_leading = 0;
  int64_t a_batch = 0, b_batch = 0, c_batch = 0, d_batch = 0;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  void* d_data = nullptr;
  const void* bias = nullptr;  // absent if null
  double alpha = 1.0, beta = 0.0;
};

/// Puts the product on the context's stream; nothing waits. A workspace comes from the context's
/// allocator. False if cuBLAS has no algorithm for it; then nothing was done.
/// @throws NotSupported if there is no cuBLAS, CaptureError if a handle has to be made while the
/// stream is being captured, OutOfMemory, DeviceError, InternalError.
CUDAEXEC_API bool cublas_multiply(CudaDevice& device, const CublasProduct& product,
                                  const OpContext& context);

/// Opens the library if nobody has. Returns its path. @throws NotSupported, DeviceError.
CUDAEXEC_API std::string require_cublas();

/// For a program about to be opened: if it calls functions that need cuBLAS, opens it. `undefined`
/// are the functions that it wants, `name` is the program's. Nothing without a driver.
/// @throws NotSupported naming the program, the functions and what to install.
CUDAEXEC_API void require_called_libraries(std::span<const std::string> undefined,
                                           const std::string& name);

/// Handles and remembered choices of all devices.
struct CublasCounts {
  int64_t handles = 0;
  int64_t plans = 0;
};
CUDAEXEC_API CublasCounts cublas_counts();

/// Destroys the handles that no call is using, with what they remember; later calls make new ones.
CUDAEXEC_API void trim_cublas() noexcept;
/// As above, and closes the library: no call may be running. For tests.
CUDAEXEC_API void reset_cublas() noexcept;

}  // namespace cudaexec::gpu
