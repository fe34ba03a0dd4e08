// The codes that generated code asks for by name while it is opened: torch's, including those of
// types that programs here cannot use.
#include <cstddef>
#include <cstdint>

#include "aoti/shims/fence.h"

#define CUDAEXEC_CONSTANT(NAME, VALUE) \
  CUDAEXEC_SHIM int32_t aoti_torch_##NAME() { return VALUE; }

CUDAEXEC_CONSTANT(device_type_cpu, 0)
CUDAEXEC_CONSTANT(device_type_cuda, 1)
CUDAEXEC_CONSTANT(device_type_xpu, 12)
CUDAEXEC_CONSTANT(device_type_mps, 13)
CUDAEXEC_CONSTANT(device_type_meta, 14)
CUDAEXEC_CONSTANT(device_type_privateuse1, 20)

CUDAEXEC_CONSTANT(dtype_uint8, 0)
CUDAEXEC_CONSTANT(dtype_int8, 1)
CUDAEXEC_CONSTANT(dtype_int16, 2)
CUDAEXEC_CONSTANT(dtype_int32, 3)
CUDAEXEC_CONSTANT(dtype_int64, 4)
CUDAEXEC_CONSTANT(dtype_float16, 5)
CUDAEXEC_CONSTANT(dtype_float32, 6)
CUDAEXEC_CONSTANT(dtype_float64, 7)
CUDAEXEC_CONSTANT(dtype_complex32, 8)
CUDAEXEC_CONSTANT(dtype_complex64, 9)
CUDAEXEC_CONSTANT(dtype_complex128, 10)
CUDAEXEC_CONSTANT(dtype_bool, 11)
CUDAEXEC_CONSTANT(dtype_bfloat16, 15)
CUDAEXEC_CONSTANT(dtype_float8_e5m2, 23)
CUDAEXEC_CONSTANT(dtype_float8_e4m3fn, 24)
CUDAEXEC_CONSTANT(dtype_float8_e5m2fnuz, 25)
CUDAEXEC_CONSTANT(dtype_float8_e4m3fnuz, 26)
CUDAEXEC_CONSTANT(dtype_uint16, 27)
CUDAEXEC_CONSTANT(dtype_uint32, 28)
CUDAEXEC_CONSTANT(dtype_uint64, 29)
CUDAEXEC_CONSTANT(dtype_float8_e8m0fnu, 44)
CUDAEXEC_CONSTANT(dtype_float4_e2m1fn_x2, 45)

CUDAEXEC_CONSTANT(layout_strided, 0)
CUDAEXEC_CONSTANT(layout_sparse_coo, 1)
CUDAEXEC_CONSTANT(layout_sparse_csr, 2)
CUDAEXEC_CONSTANT(layout__mkldnn, 3)
CUDAEXEC_CONSTANT(layout_sparse_csc, 4)
CUDAEXEC_CONSTANT(layout_sparse_bsr, 5)
CUDAEXEC_CONSTANT(layout_sparse_bsc, 6)
CUDAEXEC_CONSTANT(layout_jagged, 7)

CUDAEXEC_CONSTANT(memory_format_contiguous_format, 0)
CUDAEXEC_CONSTANT(memory_format_preserve_format, 1)
CUDAEXEC_CONSTANT(memory_format_channels_last, 2)
CUDAEXEC_CONSTANT(memory_format_channels_last_3d, 3)

CUDAEXEC_SHIM size_t aoti_torch_dtype_element_size(int32_t dtype) {
  switch (dtype) {
    case 0:
    case 1:
    case 11:
    case 23:
    case 24:
    case 25:
    case 26:
    case 44:
    case 45:
      return 1;
    case 2:
    case 5:
    case 15:
    case 27:
      return 2;
    case 3:
    case 6:
    case 8:
    case 28:
      return 4;
    case 4:
    case 7:
    case 9:
    case 29:
      return 8;
    case 10:
      return 16;
    default:
      return 0;  // a code of no type
  }
}

/// Version of what this library offers to generated code; grows when names are added, and the
/// SONAME changes if one is ever removed.
CUDAEXEC_SHIM int32_t cudaexec_shims_abi_version() { return 1; }
