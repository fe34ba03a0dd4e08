// Copies and fills.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fakecuda {

namespace {

bool is_device_side(CUdeviceptr data) {
  const Block* block = find_block(data);
  return block != nullptr && block->memory != Memory::kHost &&
         block->memory != Memory::kRegistered && !block->freed;
}

CUDA_MEMCPY3D flat_copy(CUdeviceptr dst, CUdeviceptr src, size_t nbytes) {
  CUDA_MEMCPY3D copy{};
  const bool from_device = is_device_side(src);
  const bool to_device = is_device_side(dst);
  copy.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (from_device) copy.srcDevice = src;
  if (!from_device) copy.srcHost = reinterpret_cast<const void*>(src);
  if (to_device) copy.dstDevice = dst;
  if (!to_device) copy.dstHost = reinterpret_cast<void*>(dst);
  copy.WidthInBytes = nbytes;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

enum class Side { kAny, kHost, kDevice };

bool check_side(Side side, CUdeviceptr data, size_t nbytes, const char* entry) {
  if (side == Side::kDevice || (side == Side::kAny && is_device_side(data))) {
    return check_use(data, nbytes, entry);
  }
  if (data == 0) {
    misuse(std::string(entry) + ": null", CUDA_ERROR_INVALID_VALUE);
    return false;
  }
  return true;
}

CUresult copy_on_stream(const char* entry, Side dst_side, CUdeviceptr dst, Side src_side,
                        CUdeviceptr src, size_t nbytes, CUstream handle, bool wait) {
  Stream* stream = find_stream(handle, entry);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (nbytes == 0) return CUDA_SUCCESS;
  if (!check_side(dst_side, dst, nbytes, entry) || !check_side(src_side, src, nbytes, entry)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check_legacy(stream, entry)) return result;
  if (stream->capture != nullptr) {
    NodeData data;
    data.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    data.copy = flat_copy(dst, src, nbytes);
    return capture_node(stream, std::move(data));
  }
  const bool from_pageable = is_pageable(reinterpret_cast<const void*>(src));
  const bool to_pageable = is_pageable(reinterpret_cast<const void*>(dst));
  if (from_pageable) {  // the driver takes the bytes before it returns
    const auto* bytes = reinterpret_cast<const std::byte*>(src);
    auto staged = std::make_shared<std::vector<std::byte>>(bytes, bytes + nbytes);
    enqueue(stream, [dst, staged] {
      do_copy(dst, reinterpret_cast<CUdeviceptr>(staged->data()), staged->size());
    });
  } else {
    enqueue(stream, [=] { do_copy(dst, src, nbytes); });
  }
  if (wait || to_pageable) finish(stream->tail);
  return CUDA_SUCCESS;
}

CUresult set_on_stream(const char* entry, const CUDA_MEMSET_NODE_PARAMS& set, CUstream handle) {
  Stream* stream = find_stream(handle, entry);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (set.width == 0) return CUDA_SUCCESS;
  if (!check_use(set.dst, set.width * set.elementSize, entry)) return CUDA_ERROR_INVALID_VALUE;
  if (set.dst % set.elementSize != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_legacy(stream, entry)) return result;
  if (stream->capture != nullptr) {
    NodeData data;
    data.type = CU_GRAPH_NODE_TYPE_MEMSET;
    data.set = set;
    return capture_node(stream, std::move(data));
  }
  enqueue(stream, [set] { do_set(set); });
  return CUDA_SUCCESS;
}

CUDA_MEMSET_NODE_PARAMS flat_set(CUdeviceptr dst, unsigned value, unsigned element, size_t count) {
  return {dst, 0, value, element, count, 1};
}

CUdeviceptr address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

}  // namespace

void do_copy(CUdeviceptr dst, CUdeviceptr src, size_t nbytes) {
  const auto touchable = [nbytes](CUdeviceptr data, const char* what) {
    if (is_pageable(reinterpret_cast<const void*>(data)) && find_block(data) == nullptr)
      return true;
    if (check_access(data, nbytes, what)) return true;
    // Freed memory is poisoned: let the copy read it, so that the result is visibly wrong.
    const Block* block = find_block(data);
    return block != nullptr && block->memory != Memory::kMapped &&
           data + nbytes <= block->base + block->nbytes;
  };
  if (touchable(dst, "copy (to)") && touchable(src, "copy (from)")) {
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), nbytes);
  }
}

void do_set(const CUDA_MEMSET_NODE_PARAMS& set) {
  if (!check_access(set.dst, set.width * set.elementSize, "fill")) return;
  auto* dst = reinterpret_cast<std::byte*>(set.dst);
  for (size_t i = 0; i < set.width; ++i) {
    std::memcpy(dst + i * set.elementSize, &set.value, set.elementSize);
  }
}

}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t nbytes) {
  FAKE_ENTER(cuMemcpy, dst, src, nbytes);
  return copy_on_stream("cuMemcpy", Side::kAny, dst, Side::kAny, src, nbytes, nullptr, true);
}

FAKE_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyAsync, dst, src, nbytes, stream);
  return copy_on_stream("cuMemcpyAsync", Side::kAny, dst, Side::kAny, src, nbytes, stream, false);
}

FAKE_API CUresult cuMemcpyHtoD(CUdeviceptr dst, const void* src, size_t nbytes) {
  FAKE_ENTER(cuMemcpyHtoD, dst, src, nbytes);
  return copy_on_stream("cuMemcpyHtoD", Side::kDevice, dst, Side::kHost, address(src), nbytes,
                        nullptr, true);
}

FAKE_API CUresult cuMemcpyDtoH(void* dst, CUdeviceptr src, size_t nbytes) {
  FAKE_ENTER(cuMemcpyDtoH, dst, src, nbytes);
  return copy_on_stream("cuMemcpyDtoH", Side::kHost, address(dst), Side::kDevice, src, nbytes,
                        nullptr, true);
}

FAKE_API CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t nbytes) {
  FAKE_ENTER(cuMemcpyDtoD, dst, src, nbytes);
  return copy_on_stream("cuMemcpyDtoD", Side::kDevice, dst, Side::kDevice, src, nbytes, nullptr,
                        false);
}

FAKE_API CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void* src, size_t nbytes,
                                    CUstream stream) {
  FAKE_ENTER(cuMemcpyHtoDAsync, dst, src, nbytes, stream);
  return copy_on_stream("cuMemcpyHtoDAsync", Side::kDevice, dst, Side::kHost, address(src), nbytes,
                        stream, false);
}

FAKE_API CUresult cuMemcpyDtoHAsync(void* dst, CUdeviceptr src, size_t nbytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyDtoHAsync, dst, src, nbytes, stream);
  return copy_on_stream("cuMemcpyDtoHAsync", Side::kHost, address(dst), Side::kDevice, src, nbytes,
                        stream, false);
}

FAKE_API CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t nbytes,
                                    CUstream stream) {
  FAKE_ENTER(cuMemcpyDtoDAsync, dst, src, nbytes, stream);
  return copy_on_stream("cuMemcpyDtoDAsync", Side::kDevice, dst, Side::kDevice, src, nbytes, stream,
                        false);
}

FAKE_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                    CUcontext src_context, size_t nbytes, CUstream stream) {
  FAKE_ENTER(cuMemcpyPeerAsync, dst, dst_context, src, src_context, nbytes, stream);
  if (find<Context>(dst_context, Kind::kContext, "cuMemcpyPeerAsync") == nullptr ||
      find<Context>(src_context, Kind::kContext, "cuMemcpyPeerAsync") == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const Block* to = find_block(dst);
  const Block* from = find_block(src);
  if (to == nullptr || from == nullptr || reinterpret_cast<CUcontext>(to->context) != dst_context ||
      reinterpret_cast<CUcontext>(from->context) != src_context) {
    return misuse("cuMemcpyPeerAsync: memory of another context", CUDA_ERROR_INVALID_VALUE);
  }
  return copy_on_stream("cuMemcpyPeerAsync", Side::kDevice, dst, Side::kDevice, src, nbytes, stream,
                        false);
}

FAKE_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count,
                                  CUstream stream) {
  FAKE_ENTER(cuMemsetD8Async, dst, value, count, stream);
  return set_on_stream("cuMemsetD8Async", flat_set(dst, value, 1, count), stream);
}

FAKE_API CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count,
                                   CUstream stream) {
  FAKE_ENTER(cuMemsetD16Async, dst, value, count, stream);
  return set_on_stream("cuMemsetD16Async", flat_set(dst, value, 2, count), stream);
}

FAKE_API CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream) {
  FAKE_ENTER(cuMemsetD32Async, dst, value, count, stream);
  return set_on_stream("cuMemsetD32Async", flat_set(dst, value, 4, count), stream);
}
