// The world: entry log, faults, handles, devices, contexts.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fakecuda {

World& world() {
  static World& instance = *new World;
  return instance;
}

CUresult misuse(const std::string& what, CUresult result) {
  world().misuse.push_back(what);
  return result;
}

CUresult enter(const char* name, const std::string& arguments) {
  World& w = world();
  if (w.log) w.calls.push_back(std::string(name) + "(" + arguments + ")");
  CUresult injected = CUDA_SUCCESS;
  for (Fault& fault : w.faults) {
    if (!fault.name.empty() && fault.name != name) continue;
    ++fault.seen;
    const bool hit = fault.seen == fault.k || (fault.repeat && fault.seen > fault.k);
    if (hit && injected == CUDA_SUCCESS) injected = fault.result;
  }
  if (injected != CUDA_SUCCESS) {
    ++w.faults_hit;
    if (w.log) w.calls.back() += " -> injected " + std::to_string(injected);
  }
  return injected;
}

std::vector<Context*>& context_stack() {
  struct ThreadStack {
    uint64_t generation = 0;
    std::vector<Context*> stack;
  };
  thread_local ThreadStack mine;
  if (mine.generation != world().generation) mine = {world().generation, {}};
  return mine.stack;
}

Context* current_context() {
  std::vector<Context*>& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return nullptr;
  if (!stack.back()->alive) {
    misuse("a destroyed context is current", CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return nullptr;
  }
  return stack.back();
}

Object* find_object(const void* handle, Kind kind, const char* entry) {
  const auto found = world().handles.find(handle);
  if (found == world().handles.end() || found->second->kind != kind) {
    misuse(std::string(entry) + ": not a handle of this kind", CUDA_ERROR_INVALID_HANDLE);
    return nullptr;
  }
  if (!found->second->alive) {
    misuse(std::string(entry) + ": used after it was destroyed", CUDA_ERROR_INVALID_HANDLE);
    return nullptr;
  }
  return found->second;
}

namespace {

DeviceState* find_device(CUdevice device) {
  std::vector<DeviceState>& devices = world().devices;
  if (device < 0 || static_cast<size_t>(device) >= devices.size()) return nullptr;
  return &devices[static_cast<size_t>(device)];
}

Context* find_context(CUcontext handle, const char* entry) {
  return find<Context>(handle, Kind::kContext, entry);
}

CUcontext context_handle(Context* context) { return reinterpret_cast<CUcontext>(context); }

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuInit(unsigned flags) {
  FAKE_ENTER(cuInit, flags);
  if (world().init_result != CUDA_SUCCESS) return world().init_result;
  return world().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

FAKE_API CUresult cuDriverGetVersion(int* version) {
  FAKE_ENTER(cuDriverGetVersion);
  *version = world().driver_version;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGetErrorName(CUresult error, const char** text) {
  struct Name {
    CUresult error;
    const char* text;
  };
#define FAKE_NAME(name) \
  {                     \
    name, #name         \
  }
  static constexpr Name kNames[] = {FAKE_NAME(CUDA_SUCCESS),
                                    FAKE_NAME(CUDA_ERROR_INVALID_VALUE),
                                    FAKE_NAME(CUDA_ERROR_OUT_OF_MEMORY),
                                    FAKE_NAME(CUDA_ERROR_NO_DEVICE),
                                    FAKE_NAME(CUDA_ERROR_INVALID_DEVICE),
                                    FAKE_NAME(CUDA_ERROR_INVALID_IMAGE),
                                    FAKE_NAME(CUDA_ERROR_INVALID_CONTEXT),
                                    FAKE_NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
                                    FAKE_NAME(CUDA_ERROR_INVALID_HANDLE),
                                    FAKE_NAME(CUDA_ERROR_NOT_FOUND),
                                    FAKE_NAME(CUDA_ERROR_NOT_READY),
                                    FAKE_NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
                                    FAKE_NAME(CUDA_ERROR_LAUNCH_FAILED),
                                    FAKE_NAME(CUDA_ERROR_NOT_SUPPORTED),
                                    FAKE_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
                                    FAKE_NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                                    FAKE_NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
                                    FAKE_NAME(CUDA_ERROR_UNKNOWN)};
#undef FAKE_NAME
  *text = nullptr;
  for (const Name& name : kNames) {
    if (name.error == error) *text = name.text;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_API CUresult cuGetErrorString(CUresult error, const char** text) {
  const CUresult result = cuGetErrorName(error, text);
  if (result == CUDA_SUCCESS) *text = "as the fake driver says";
  return result;
}

FAKE_API CUresult cuDeviceGetCount(int* count) {
  FAKE_ENTER(cuDeviceGetCount);
  *count = static_cast<int>(world().devices.size());
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_ENTER(cuDeviceGet, ordinal);
  if (find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetName(char* name, int capacity, CUdevice device) {
  FAKE_ENTER(cuDeviceGetName, device);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::string text = "Fake GPU " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<size_t>(capacity) - 1);
  name[capacity - 1] = '\0';
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_ENTER(cuDeviceGetUuid, device);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  FAKE_ENTER(cuDeviceTotalMem, device);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = find_device(device)->total;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_ENTER(cuDeviceGetAttribute, attribute, device);
  const DeviceState* state = find_device(device);
  if (state == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = state->sm_count;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = state->sm_major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = state->sm_minor;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = state->virtual_memory ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *value = state->pools ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 60 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  FAKE_ENTER(cuDeviceCanAccessPeer, device, peer);
  if (find_device(device) == nullptr || find_device(peer) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain, device);
  DeviceState* state = find_device(device);
  if (state == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (state->primary == nullptr) {
    state->primary = make_object<Context>(device);
    state->primary->legacy = make_stream(state->primary, true, true);
  }
  ++state->retained;
  *context = context_handle(state->primary);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease, device);
  DeviceState* state = find_device(device);
  if (state == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (state->retained == 0) {
    return misuse("cuDevicePrimaryCtxRelease: not retained", CUDA_ERROR_INVALID_CONTEXT);
  }
  if (--state->retained == 0) {
    finish_context(state->primary);
    state->primary->alive = false;
    state->primary->legacy->alive = false;
    state->primary = nullptr;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_ENTER(cuCtxPushCurrent, context);
  Context* found = find_context(context, "cuCtxPushCurrent");
  if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_ENTER(cuCtxPopCurrent);
  std::vector<Context*>& stack = context_stack();
  if (stack.empty()) {
    return misuse("cuCtxPopCurrent: nothing to pop", CUDA_ERROR_INVALID_CONTEXT);
  }
  if (context != nullptr) *context = context_handle(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetCurrent(CUcontext* context) {
  FAKE_ENTER(cuCtxGetCurrent);
  *context = context_handle(current_context());
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSetCurrent(CUcontext context) {
  FAKE_ENTER(cuCtxSetCurrent, context);
  Context* found = nullptr;
  if (context != nullptr) {
    found = find_context(context, "cuCtxSetCurrent");
    if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  std::vector<Context*>& stack = context_stack();
  if (!stack.empty()) stack.pop_back();
  if (found != nullptr) stack.push_back(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_ENTER(cuCtxGetDevice);
  FAKE_CONTEXT(context);
  *device = context->device;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSynchronize() {
  FAKE_ENTER(cuCtxSynchronize);
  FAKE_CONTEXT(context);
  for (Stream* stream : context->streams) {
    if (stream->capture == nullptr) continue;
    invalidate(*stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  finish_context(context);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  FAKE_ENTER(cuCtxEnablePeerAccess, peer, flags);
  FAKE_CONTEXT(context);
  return find_context(peer, "cuCtxEnablePeerAccess") != nullptr && peer != context_handle(context)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_CONTEXT;
}
