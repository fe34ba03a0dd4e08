// Memory pools: stream-ordered allocation, and how much of the device a pool keeps.
#include <algorithm>

#include "fake.h"

namespace fakecuda {

namespace {

constexpr size_t kPoolChunk = size_t{2} << 20;

Pool* find_pool(CUmemoryPool handle, const char* entry) {
  return find<Pool>(handle, Kind::kPool, entry);
}

bool grow_pool(Pool& pool, size_t nbytes) {
  DeviceState& device = world().devices[static_cast<size_t>(pool.device)];
  const size_t needed = round_up(pool.used + nbytes, kPoolChunk);
  if (needed > pool.reserved) {
    if (device.used + needed - pool.reserved > device.total) return false;
    device.used += needed - pool.reserved;
    pool.reserved = needed;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  }
  pool.used += nbytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  return true;
}

}  // namespace

void trim_pool(Pool& pool, size_t keep) {
  if (keep >= pool.reserved) return;
  const size_t target = std::max(round_up(pool.used, kPoolChunk), round_up(keep, kPoolChunk));
  if (pool.reserved <= target) return;
  world().devices[static_cast<size_t>(pool.device)].used -= pool.reserved - target;
  pool.reserved = target;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  FAKE_ENTER(cuMemPoolCreate, properties->location.id);
  const auto device = static_cast<size_t>(properties->location.id);
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      device >= world().devices.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!world().devices[device].pools) return CUDA_ERROR_NOT_SUPPORTED;
  auto* made = make_object<Pool>();
  made->device = properties->location.id;
  *pool = reinterpret_cast<CUmemoryPool>(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  FAKE_ENTER(cuMemPoolDestroy, handle);
  Pool* pool = find_pool(handle, "cuMemPoolDestroy");
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_unsafe("cuMemPoolDestroy")) return result;
  for (auto& [base, block] : world().blocks) {
    if (block.pool == pool && !block.freed && !block.freeing) {
      misuse("cuMemPoolDestroy: memory of the pool was not freed", CUDA_SUCCESS);
      break;
    }
  }
  const DeviceState& device = world().devices[static_cast<size_t>(pool->device)];
  if (device.primary != nullptr) finish_context(device.primary);
  pool->alive = false;
  trim_pool(*pool, 0);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                        void* value) {
  FAKE_ENTER(cuMemPoolSetAttribute, handle, attribute);
  Pool* pool = find_pool(handle, "cuMemPoolSetAttribute");
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    pool->release_threshold = *static_cast<uint64_t*>(value);
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    pool->used_high = pool->used;
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    pool->reserved_high = pool->reserved;
  } else if (attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                        void* value) {
  FAKE_ENTER(cuMemPoolGetAttribute, handle, attribute);
  const Pool* pool = find_pool(handle, "cuMemPoolGetAttribute");
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<uint64_t*>(value) = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<uint64_t*>(value) = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *static_cast<uint64_t*>(value) = pool->reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<uint64_t*>(value) = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<uint64_t*>(value) = pool->used_high;
      return CUDA_SUCCESS;
    default:
      *static_cast<int*>(value) = 1;
      return CUDA_SUCCESS;
  }
}

FAKE_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access,
                                     size_t count) {
  FAKE_ENTER(cuMemPoolSetAccess, handle, count);
  if (find_pool(handle, "cuMemPoolSetAccess") == nullptr || access == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  FAKE_ENTER(cuMemPoolTrimTo, handle, keep);
  Pool* pool = find_pool(handle, "cuMemPoolTrimTo");
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  trim_pool(*pool, keep);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* data, size_t nbytes, CUmemoryPool handle,
                                          CUstream stream_handle) {
  FAKE_ENTER(cuMemAllocFromPoolAsync, nbytes, handle, stream_handle);
  Pool* pool = find_pool(handle, "cuMemAllocFromPoolAsync");
  Stream* stream = find_stream(stream_handle, "cuMemAllocFromPoolAsync");
  if (pool == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->context->device != pool->device) {
    return misuse("cuMemAllocFromPoolAsync: pool of another device", CUDA_ERROR_INVALID_VALUE);
  }
  if (const CUresult result = check_legacy(stream, "cuMemAllocFromPoolAsync")) return result;
  if (stream->capture != nullptr) {
    return misuse("cuMemAllocFromPoolAsync: would become a graph node", CUDA_ERROR_NOT_SUPPORTED);
  }
  if (!grow_pool(*pool, round_up(nbytes, kAlignment))) return CUDA_ERROR_OUT_OF_MEMORY;
  Block* block = add_block(nbytes, Memory::kPool, stream->context, 0);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  block->pool = pool;
  block->ready = false;
  const uintptr_t base = block->base;
  enqueue(stream, [base] {
    if (Block* made = find_block(base); made != nullptr) made->ready = true;
  });
  *data = base;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFreeAsync(CUdeviceptr data, CUstream stream_handle) {
  FAKE_ENTER(cuMemFreeAsync, data, stream_handle);
  Stream* stream = find_stream(stream_handle, "cuMemFreeAsync");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Block* block = find_block(data);
  if (block == nullptr || block->base != data || block->freeing || block->freed ||
      block->memory != Memory::kPool) {
    return misuse("cuMemFreeAsync: not an allocation, or freed before", CUDA_ERROR_INVALID_VALUE);
  }
  if (const CUresult result = check_legacy(stream, "cuMemFreeAsync")) return result;
  if (stream->capture != nullptr) {
    return misuse("cuMemFreeAsync: would become a graph node", CUDA_ERROR_NOT_SUPPORTED);
  }
  block->freeing = true;
  const uintptr_t base = data;
  enqueue(stream, [base] {
    Block* gone = find_block(base);
    if (gone == nullptr || gone->freed) return;
    if (!gone->ready) misuse("cuMemFreeAsync: done before the allocation was", CUDA_SUCCESS);
    retire(*gone);
  });
  return CUDA_SUCCESS;
}
