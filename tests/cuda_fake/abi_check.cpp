// Compares driver_abi.h, driver_entries.h and generated_entries.h with NVIDIA's headers. Nothing
// here runs: a difference does not compile.
#include "device/cuda/driver_abi.h"
#include "device/cuda/driver_entries.h"
#include "device/cuda/generated_entries.h"

// After ours: cuda.h defines macros over the entry names.
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

namespace cudaexec::cuda {
namespace {

// ---- signatures
// ----------------------------------------------------------------------------------

/// The same machine type: what the calling convention sees.
template <typename Ours, typename Theirs>
constexpr bool same_machine_type() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using A = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using B = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
      return std::is_same_v<A, B>;
    } else if constexpr (std::is_same_v<A, B>) {
      return true;
    } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
      // Runtime attributes: the newer runtime appends reserved words.
      return sizeof(A) == sizeof(B) || std::is_same_v<A, RuntimePointerAttributes>;
    } else {
      return same_machine_type<A, B>();
    }
  } else {
    constexpr bool ours = std::is_enum_v<Ours> || std::is_integral_v<Ours>;
    constexpr bool theirs = std::is_enum_v<Theirs> || std::is_integral_v<Theirs>;
    return (ours && theirs && sizeof(Ours) == sizeof(Theirs)) || std::is_same_v<Ours, Theirs>;
  }
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct SameCall<R1 (*)(A1...), R2 (*)(A2...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A1) == sizeof...(A2)) {
      return same_machine_type<R1, R2>() && (same_machine_type<A1, A2>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = compare();
};

#define CHECK_DRIVER_ENTRY(name, version, parameters)                             \
  static_assert(SameCall<CUresult(*) parameters, PFN_##name##_v##version>::value, \
                #name " is declared differently in cudaTypedefs.h");
CUDAEXEC_CUDA_ENTRIES(CHECK_DRIVER_ENTRY)

#define CHECK_RUNTIME_ENTRY(name, parameters)                               \
  static_assert(SameCall<CUresult(*) parameters, decltype(&::name)>::value, \
                #name " is declared differently in cuda_runtime_api.h");
CUDAEXEC_RUNTIME_ENTRIES(CHECK_RUNTIME_ENTRY)
static_assert(SameCall<const char* (*)(CUresult), decltype(&::cudaGetErrorString)>::value);

#define CHECK_INTERPOSED_ENTRY(name, parameters)                            \
  static_assert(SameCall<CUresult(*) parameters, decltype(&::name)>::value, \
                #name " is declared differently in cuda.h");
CUDAEXEC_INTERPOSED_ENTRIES(CHECK_INTERPOSED_ENTRY)

// ---- handles
// -------------------------------------------------------------------------------------

static_assert(std::is_same_v<CUcontext, ::CUcontext> && std::is_same_v<CUstream, ::CUstream> &&
              std::is_same_v<CUevent, ::CUevent> && std::is_same_v<CUmodule, ::CUmodule> &&
              std::is_same_v<CUfunction, ::CUfunction> && std::is_same_v<CUgraph, ::CUgraph> &&
              std::is_same_v<CUgraphNode, ::CUgraphNode> &&
              std::is_same_v<CUgraphExec, ::CUgraphExec> &&
              std::is_same_v<CUmemoryPool, ::CUmemoryPool> &&
              std::is_same_v<CUdeviceptr, ::CUdeviceptr> && std::is_same_v<CUdevice, ::CUdevice>);
static_assert(std::is_same_v<cudaStream_t, CUstream> && std::is_same_v<cudaEvent_t, CUevent>);

// ---- numbers
// -------------------------------------------------------------------------------------

#define CHECK_NUMBER(name) \
  static_assert(static_cast<long>(name) == static_cast<long>(::name), #name);
CHECK_NUMBER(CUDA_SUCCESS)
CHECK_NUMBER(CUDA_ERROR_INVALID_VALUE)
CHECK_NUMBER(CUDA_ERROR_OUT_OF_MEMORY)
CHECK_NUMBER(CUDA_ERROR_NOT_INITIALIZED)
CHECK_NUMBER(CUDA_ERROR_DEINITIALIZED)
CHECK_NUMBER(CUDA_ERROR_DEVICE_UNAVAILABLE)
CHECK_NUMBER(CUDA_ERROR_NO_DEVICE)
CHECK_NUMBER(CUDA_ERROR_INVALID_DEVICE)
CHECK_NUMBER(CUDA_ERROR_INVALID_IMAGE)
CHECK_NUMBER(CUDA_ERROR_INVALID_CONTEXT)
CHECK_NUMBER(CUDA_ERROR_NO_BINARY_FOR_GPU)
CHECK_NUMBER(CUDA_ERROR_ECC_UNCORRECTABLE)
CHECK_NUMBER(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
CHECK_NUMBER(CUDA_ERROR_INVALID_PTX)
CHECK_NUMBER(CUDA_ERROR_JIT_COMPILER_NOT_FOUND)
CHECK_NUMBER(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
CHECK_NUMBER(CUDA_ERROR_INVALID_HANDLE)
CHECK_NUMBER(CUDA_ERROR_ILLEGAL_STATE)
CHECK_NUMBER(CUDA_ERROR_NOT_FOUND)
CHECK_NUMBER(CUDA_ERROR_NOT_READY)
CHECK_NUMBER(CUDA_ERROR_ILLEGAL_ADDRESS)
CHECK_NUMBER(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
CHECK_NUMBER(CUDA_ERROR_LAUNCH_TIMEOUT)
CHECK_NUMBER(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
CHECK_NUMBER(CUDA_ERROR_CONTEXT_IS_DESTROYED)
CHECK_NUMBER(CUDA_ERROR_ASSERT)
CHECK_NUMBER(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
CHECK_NUMBER(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
CHECK_NUMBER(CUDA_ERROR_HARDWARE_STACK_ERROR)
CHECK_NUMBER(CUDA_ERROR_ILLEGAL_INSTRUCTION)
CHECK_NUMBER(CUDA_ERROR_MISALIGNED_ADDRESS)
CHECK_NUMBER(CUDA_ERROR_INVALID_ADDRESS_SPACE)
CHECK_NUMBER(CUDA_ERROR_INVALID_PC)
CHECK_NUMBER(CUDA_ERROR_LAUNCH_FAILED)
CHECK_NUMBER(CUDA_ERROR_NOT_PERMITTED)
CHECK_NUMBER(CUDA_ERROR_NOT_SUPPORTED)
CHECK_NUMBER(CUDA_ERROR_SYSTEM_NOT_READY)
CHECK_NUMBER(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
CHECK_NUMBER(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_MERGE)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
CHECK_NUMBER(CUDA_ERROR_CAPTURED_EVENT)
CHECK_NUMBER(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
CHECK_NUMBER(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
CHECK_NUMBER(CUDA_ERROR_UNKNOWN)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_INTEGRATED)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
CHECK_NUMBER(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_CONTEXT)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_HOST_POINTER)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_IS_MANAGED)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
CHECK_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_SIZE)
CHECK_NUMBER(CU_MEMORYTYPE_HOST)
CHECK_NUMBER(CU_MEMORYTYPE_DEVICE)
CHECK_NUMBER(CU_MEMORYTYPE_ARRAY)
CHECK_NUMBER(CU_MEMORYTYPE_UNIFIED)
CHECK_NUMBER(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
CHECK_NUMBER(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
CHECK_NUMBER(CU_STREAM_CAPTURE_MODE_GLOBAL)
CHECK_NUMBER(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
CHECK_NUMBER(CU_STREAM_CAPTURE_MODE_RELAXED)
CHECK_NUMBER(CU_STREAM_CAPTURE_STATUS_NONE)
CHECK_NUMBER(CU_STREAM_CAPTURE_STATUS_ACTIVE)
CHECK_NUMBER(CU_STREAM_CAPTURE_STATUS_INVALIDATED)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_KERNEL)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_MEMCPY)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_MEMSET)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_HOST)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_GRAPH)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_EMPTY)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_WAIT_EVENT)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_EVENT_RECORD)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_MEM_ALLOC)
CHECK_NUMBER(CU_GRAPH_NODE_TYPE_MEM_FREE)
CHECK_NUMBER(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)
CHECK_NUMBER(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)
CHECK_NUMBER(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
CHECK_NUMBER(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
CHECK_NUMBER(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
CHECK_NUMBER(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
CHECK_NUMBER(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
CHECK_NUMBER(CU_MEMPOOL_ATTR_USED_MEM_HIGH)
CHECK_NUMBER(CU_MEM_ALLOCATION_TYPE_PINNED)
CHECK_NUMBER(CU_MEM_HANDLE_TYPE_NONE)
CHECK_NUMBER(CU_MEM_LOCATION_TYPE_DEVICE)
CHECK_NUMBER(CU_MEM_ACCESS_FLAGS_PROT_NONE)
CHECK_NUMBER(CU_MEM_ACCESS_FLAGS_PROT_READ)
CHECK_NUMBER(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
CHECK_NUMBER(CU_MEM_ALLOC_GRANULARITY_MINIMUM)
CHECK_NUMBER(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
CHECK_NUMBER(CU_STREAM_NON_BLOCKING)
CHECK_NUMBER(CU_EVENT_DISABLE_TIMING)
CHECK_NUMBER(CU_EVENT_WAIT_DEFAULT)
static_assert(CU_MEMHOSTALLOC_PORTABLE_ == CU_MEMHOSTALLOC_PORTABLE);
static_assert(CU_MEMHOSTREGISTER_PORTABLE_ == CU_MEMHOSTREGISTER_PORTABLE);
#define CHECK_RENAMED(ours, theirs) static_assert(int{ours} == static_cast<int>(theirs), #theirs);
CHECK_RENAMED(kHostToHost, cudaMemcpyHostToHost)
CHECK_RENAMED(kHostToDevice, cudaMemcpyHostToDevice)
CHECK_RENAMED(kDeviceToHost, cudaMemcpyDeviceToHost)
CHECK_RENAMED(kDeviceToDevice, cudaMemcpyDeviceToDevice)
CHECK_RENAMED(kByAddress, cudaMemcpyDefault)
CHECK_RENAMED(kUnregistered, cudaMemoryTypeUnregistered)
CHECK_RENAMED(kHost, cudaMemoryTypeHost)
CHECK_RENAMED(kDevice, cudaMemoryTypeDevice)
CHECK_RENAMED(kManaged, cudaMemoryTypeManaged)
static_assert(kInvalidRuntimeDevice == cudaInvalidDeviceId);
// The runtime's error numbers are the driver's.
static_assert(static_cast<int>(cudaErrorMemoryAllocation) == CUDA_ERROR_OUT_OF_MEMORY &&
              static_cast<int>(cudaErrorInvalidValue) == CUDA_ERROR_INVALID_VALUE &&
              static_cast<int>(cudaErrorInitializationError) == CUDA_ERROR_NOT_INITIALIZED &&
              static_cast<int>(cudaErrorInvalidDevice) == CUDA_ERROR_INVALID_DEVICE &&
              static_cast<int>(cudaErrorInvalidResourceHandle) == CUDA_ERROR_INVALID_HANDLE &&
              static_cast<int>(cudaErrorNotReady) == CUDA_ERROR_NOT_READY &&
              static_cast<int>(cudaErrorStreamCaptureUnsupported) ==
                  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
              static_cast<int>(cudaErrorUnknown) == CUDA_ERROR_UNKNOWN);

// ---- structures
// ----------------------------------------------------------------------------------

#define CHECK_FIELD(type, field)                                                      \
  static_assert(offsetof(type, field) == offsetof(::type, field), #type "::" #field); \
  static_assert(sizeof(type::field) == sizeof(::type::field), #type "::" #field);
#define CHECK_SIZE(type) static_assert(sizeof(type) == sizeof(::type), #type);
CHECK_SIZE(CUuuid)
CHECK_SIZE(CUmemLocation)
CHECK_FIELD(CUmemLocation, type)
CHECK_FIELD(CUmemLocation, id)
CHECK_SIZE(CUmemPoolProps)
CHECK_FIELD(CUmemPoolProps, allocType)
CHECK_FIELD(CUmemPoolProps, handleTypes)
CHECK_FIELD(CUmemPoolProps, location)
CHECK_FIELD(CUmemPoolProps, win32SecurityAttributes)
CHECK_FIELD(CUmemPoolProps, maxSize)
CHECK_FIELD(CUmemPoolProps, usage)
CHECK_SIZE(CUmemAllocationProp)
CHECK_FIELD(CUmemAllocationProp, type)
CHECK_FIELD(CUmemAllocationProp, requestedHandleTypes)
CHECK_FIELD(CUmemAllocationProp, location)
CHECK_FIELD(CUmemAllocationProp, win32HandleMetaData)
CHECK_FIELD(CUmemAllocationProp, allocFlags)
CHECK_SIZE(CUmemAccessDesc)
CHECK_FIELD(CUmemAccessDesc, location)
CHECK_FIELD(CUmemAccessDesc, flags)
CHECK_SIZE(CUDA_KERNEL_NODE_PARAMS)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, func)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimX)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimZ)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, kernelParams)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, extra)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, kern)
CHECK_FIELD(CUDA_KERNEL_NODE_PARAMS, ctx)
CHECK_SIZE(CUDA_MEMSET_NODE_PARAMS)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, dst)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, pitch)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, value)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, elementSize)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, width)
CHECK_FIELD(CUDA_MEMSET_NODE_PARAMS, height)
CHECK_SIZE(CUDA_MEMCPY3D)
CHECK_FIELD(CUDA_MEMCPY3D, srcXInBytes)
CHECK_FIELD(CUDA_MEMCPY3D, srcMemoryType)
CHECK_FIELD(CUDA_MEMCPY3D, srcHost)
CHECK_FIELD(CUDA_MEMCPY3D, srcDevice)
CHECK_FIELD(CUDA_MEMCPY3D, srcArray)
CHECK_FIELD(CUDA_MEMCPY3D, srcPitch)
CHECK_FIELD(CUDA_MEMCPY3D, dstXInBytes)
CHECK_FIELD(CUDA_MEMCPY3D, dstMemoryType)
CHECK_FIELD(CUDA_MEMCPY3D, dstHost)
CHECK_FIELD(CUDA_MEMCPY3D, dstDevice)
CHECK_FIELD(CUDA_MEMCPY3D, dstArray)
CHECK_FIELD(CUDA_MEMCPY3D, dstPitch)
CHECK_FIELD(CUDA_MEMCPY3D, WidthInBytes)
CHECK_FIELD(CUDA_MEMCPY3D, Height)
CHECK_FIELD(CUDA_MEMCPY3D, Depth)
static_assert(offsetof(RuntimePointerAttributes, type) == offsetof(cudaPointerAttributes, type) &&
              offsetof(RuntimePointerAttributes, device) ==
                  offsetof(cudaPointerAttributes, device) &&
              offsetof(RuntimePointerAttributes, devicePointer) ==
                  offsetof(cudaPointerAttributes, devicePointer) &&
              offsetof(RuntimePointerAttributes, hostPointer) ==
                  offsetof(cudaPointerAttributes, hostPointer));

}  // namespace
}  // namespace cudaexec::cuda
