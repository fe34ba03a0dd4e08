// Every driver entry we call, once: X(name, version, (parameters)). `version` is the CUDA version
// whose form of the entry we use (12020 = 12.2); the number is also the suffix of its typedef in
// NVIDIA's cudaTypedefs.h, against which a test compares the signatures. Entries newer than
// kMinimumDriver may be absent: ask DriverApi::has().
#pragma once

// clang-format off
#define CUDAEXEC_CUDA_ENTRIES(X)                                                                   \
  /* start, errors, devices, contexts */                                                           \
  X(cuInit, 2000, (unsigned flags))                                                                \
  X(cuDriverGetVersion, 2020, (int* version))                                                      \
  X(cuGetErrorName, 6000, (CUresult error, const char** text))                                     \
  X(cuGetErrorString, 6000, (CUresult error, const char** text))                                   \
  X(cuDeviceGet, 2000, (CUdevice* device, int ordinal))                                            \
  X(cuDeviceGetCount, 2000, (int* count))                                                          \
  X(cuDeviceGetName, 2000, (char* name, int capacity, CUdevice device))                            \
  X(cuDeviceGetUuid, 11040, (CUuuid* uuid, CUdevice device))                                       \
  X(cuDeviceTotalMem, 3020, (size_t* bytes, CUdevice device))                                      \
  X(cuDeviceGetAttribute, 2000, (int* value, CUdevice_attribute attribute, CUdevice device))       \
  X(cuDeviceCanAccessPeer, 4000, (int* can, CUdevice device, CUdevice peer))                       \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext* context, CUdevice device))                         \
  X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                           \
  X(cuCtxPushCurrent, 4000, (CUcontext context))                                                   \
  X(cuCtxPopCurrent, 4000, (CUcontext* context))                                                   \
  X(cuCtxGetCurrent, 4000, (CUcontext* context))                                                   \
  X(cuCtxSetCurrent, 4000, (CUcontext context))                                                    \
  X(cuCtxGetDevice, 2000, (CUdevice* device))                                                      \
  X(cuCtxSynchronize, 2000, ())                                                                    \
  X(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags))                                 \
  /* streams and events */                                                                         \
  X(cuStreamCreate, 2000, (CUstream* stream, unsigned flags))                                      \
  X(cuStreamDestroy, 4000, (CUstream stream))                                                      \
  X(cuStreamSynchronize, 2000, (CUstream stream))                                                  \
  X(cuStreamQuery, 2000, (CUstream stream))                                                        \
  X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                     \
  X(cuStreamGetCtx, 9020, (CUstream stream, CUcontext* context))                                   \
  X(cuEventCreate, 2000, (CUevent* event, unsigned flags))                                         \
  X(cuEventDestroy, 4000, (CUevent event))                                                         \
  X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                         \
  X(cuEventQuery, 2000, (CUevent event))                                                           \
  X(cuEventSynchronize, 2000, (CUevent event))                                                     \
  X(cuEventElapsedTime, 2000, (float* milliseconds, CUevent start, CUevent end))                   \
  /* memory */                                                                                     \
  X(cuMemAlloc, 3020, (CUdeviceptr* data, size_t nbytes))                                          \
  X(cuMemFree, 3020, (CUdeviceptr data))                                                           \
  X(cuMemGetInfo, 3020, (size_t* free, size_t* total))                                             \
  X(cuMemHostAlloc, 2020, (void** data, size_t nbytes, unsigned flags))                            \
  X(cuMemFreeHost, 2000, (void* data))                                                             \
  X(cuMemHostRegister, 6050, (void* data, size_t nbytes, unsigned flags))                          \
  X(cuMemHostUnregister, 4000, (void* data))                                                       \
  X(cuPointerGetAttributes, 7000, (unsigned count, CUpointer_attribute* attributes, void** values, \
                                   CUdeviceptr data))                                              \
  X(cuMemPoolCreate, 11020, (CUmemoryPool* pool, const CUmemPoolProps* properties))                \
  X(cuMemPoolDestroy, 11020, (CUmemoryPool pool))                                                  \
  X(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) \
  X(cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) \
  X(cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc* access, size_t count))   \
  X(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep))                                      \
  X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr* data, size_t nbytes, CUmemoryPool pool,          \
                                     CUstream stream))                                             \
  X(cuMemFreeAsync, 11020, (CUdeviceptr data, CUstream stream))                                    \
  /* virtual memory */                                                                             \
  X(cuMemGetAllocationGranularity, 10020, (size_t* granularity,                                    \
                                           const CUmemAllocationProp* properties,                  \
                                           CUmemAllocationGranularity_flags option))               \
  X(cuMemAddressReserve, 10020, (CUdeviceptr* data, size_t nbytes, size_t alignment,               \
                                 CUdeviceptr wanted, unsigned long long flags))                    \
  X(cuMemAddressFree, 10020, (CUdeviceptr data, size_t nbytes))                                    \
  X(cuMemCreate, 10020, (CUmemGenericAllocationHandle* handle, size_t nbytes,                      \
                         const CUmemAllocationProp* properties, unsigned long long flags))         \
  X(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                                    \
  X(cuMemMap, 10020, (CUdeviceptr data, size_t nbytes, size_t offset,                              \
                      CUmemGenericAllocationHandle handle, unsigned long long flags))              \
  X(cuMemUnmap, 10020, (CUdeviceptr data, size_t nbytes))                                          \
  X(cuMemSetAccess, 10020, (CUdeviceptr data, size_t nbytes, const CUmemAccessDesc* access,        \
                            size_t count))                                                         \
  /* copies and fills */                                                                           \
  X(cuMemcpy, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes))                             \
  X(cuMemcpyAsync, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream))       \
  X(cuMemcpyHtoD, 3020, (CUdeviceptr dst, const void* src, size_t nbytes))                         \
  X(cuMemcpyDtoH, 3020, (void* dst, CUdeviceptr src, size_t nbytes))                               \
  X(cuMemcpyDtoD, 3020, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes))                         \
  X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr dst, const void* src, size_t nbytes, CUstream stream))   \
  X(cuMemcpyDtoHAsync, 3020, (void* dst, CUdeviceptr src, size_t nbytes, CUstream stream))         \
  X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream))   \
  X(cuMemcpyPeerAsync, 4000, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,             \
                              CUcontext src_context, size_t nbytes, CUstream stream))              \
  X(cuMemsetD8Async, 3020, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream))  \
  X(cuMemsetD16Async, 3020, (CUdeviceptr dst, unsigned short value, size_t count,                  \
                             CUstream stream))                                                     \
  X(cuMemsetD32Async, 3020, (CUdeviceptr dst, unsigned value, size_t count, CUstream stream))      \
  /* code */                                                                                       \
  X(cuModuleLoadData, 2000, (CUmodule* module, const void* image))                                 \
  X(cuModuleUnload, 2000, (CUmodule module))                                                       \
  X(cuModuleGetFunction, 2000, (CUfunction* function, CUmodule module, const char* name))          \
  X(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value))    \
  X(cuFuncGetAttribute, 2020, (int* value, CUfunction_attribute attribute, CUfunction function))   \
  X(cuFuncGetParamInfo, 12040, (CUfunction function, size_t index, size_t* offset, size_t* nbytes)) \
  X(cuLaunchKernel, 4000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
                           unsigned block_x, unsigned block_y, unsigned block_z,                   \
                           unsigned shared_nbytes, CUstream stream, void** parameters,             \
                           void** extra))                                                          \
  /* graphs */                                                                                     \
  X(cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode))                      \
  X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph* graph))                                  \
  X(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus* status))                  \
  X(cuStreamGetCaptureInfo, 11030, (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id,  \
                                    CUgraph* graph, const CUgraphNode** dependencies,              \
                                    size_t* count))                                                \
  X(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode* mode))                         \
  X(cuGraphCreate, 10000, (CUgraph* graph, unsigned flags))                                        \
  X(cuGraphDestroy, 10000, (CUgraph graph))                                                        \
  X(cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode* nodes, size_t* count))                    \
  X(cuGraphGetEdges, 10000, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count))    \
  X(cuGraphAddDependencies, 10000, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, \
                                    size_t count))                                                 \
  X(cuGraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType* type))                          \
  X(cuGraphKernelNodeGetParams, 12000, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters))    \
  X(cuGraphMemcpyNodeGetParams, 10000, (CUgraphNode node, CUDA_MEMCPY3D* parameters))              \
  X(cuGraphMemsetNodeGetParams, 10000, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters))    \
  X(cuGraphAddKernelNode, 12000, (CUgraphNode* node, CUgraph graph,                                \
                                  const CUgraphNode* dependencies, size_t count,                   \
                                  const CUDA_KERNEL_NODE_PARAMS* parameters))                      \
  X(cuGraphAddMemcpyNode, 10000, (CUgraphNode* node, CUgraph graph,                                \
                                  const CUgraphNode* dependencies, size_t count,                   \
                                  const CUDA_MEMCPY3D* parameters, CUcontext context))             \
  X(cuGraphAddMemsetNode, 10000, (CUgraphNode* node, CUgraph graph,                                \
                                  const CUgraphNode* dependencies, size_t count,                   \
                                  const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context))   \
  X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec* exec, CUgraph graph,                         \
                                         unsigned long long flags))                                \
  X(cuGraphExecDestroy, 10000, (CUgraphExec exec))                                                 \
  X(cuGraphExecKernelNodeSetParams, 12000, (CUgraphExec exec, CUgraphNode node,                    \
                                            const CUDA_KERNEL_NODE_PARAMS* parameters))            \
  X(cuGraphExecMemcpyNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node,                    \
                                            const CUDA_MEMCPY3D* parameters, CUcontext context))   \
  X(cuGraphExecMemsetNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node,                    \
                                            const CUDA_MEMSET_NODE_PARAMS* parameters,             \
                                            CUcontext context))                                    \
  X(cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream))                                     \
  X(cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))
// clang-format on
