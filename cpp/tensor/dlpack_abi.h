// DLPack's C layouts, versions 0.x (legacy capsules) to 1.3 (versioned capsules and the table of C
// functions that tensor types offer), declared here so that no foreign header is needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudaexec::dlpack {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 3;

inline constexpr uint64_t kFlagReadOnly = 1u << 0;
inline constexpr uint64_t kFlagIsCopied = 1u << 1;

enum DeviceCode : int32_t {
  kDLCpu = 1,
  kDLCuda = 2,
  kDLCudaHost = 3,  // pinned host memory
  kDLRocmHost = 11,
  kDLCudaManaged = 13,
};

enum TypeCode : uint8_t {
  kDLInt = 0,
  kDLUint = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
};

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;      // in elements; null: row-major
  uint64_t byte_offset;  // from data to the first element
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

// The exchange table: a capsule named "dlpack_exchange_api" on the tensor type. Functions return 0,
// or -1 with a Python exception set; `object` is a PyObject*.
struct DLPackExchangeHeader {
  DLPackVersion version;
  DLPackExchangeHeader* prev_api;  // an older table, or null
};

using SetErrorFn = void (*)(void* context, const char* kind, const char* message);

struct DLPackExchangeApi {
  DLPackExchangeHeader header;
  int (*managed_tensor_allocator)(DLTensor* prototype, DLManagedTensorVersioned** out,
                                  void* error_context, SetErrorFn set_error);
  int (*managed_tensor_from_py_object_no_sync)(void* object, DLManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned* tensor, void** out_object);
  int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);  // may be null
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out_stream);
};

static_assert(sizeof(DLTensor) == 48);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(DLPackExchangeApi) == 56);

}  // namespace cudaexec::dlpack
