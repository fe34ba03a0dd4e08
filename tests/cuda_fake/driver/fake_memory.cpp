// Memory that programs allocate: device, pool, pinned, registered; and what an address is.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fakecuda {

namespace {

constexpr size_t kQuarantine = 256;  // freed blocks that still catch a use

bool lives_on_device(Memory memory) {
  return memory == Memory::kDevice || memory == Memory::kPool || memory == Memory::kMapped ||
         memory == Memory::kManaged;
}

}  // namespace

Block* add_block(size_t nbytes, Memory memory, Context* context, size_t accounted) {
  World& w = world();
  DeviceState& device = w.devices[static_cast<size_t>(context->device)];
  if (device.used + accounted > device.total) return nullptr;
  void* data = std::aligned_alloc(kAlignment, round_up(nbytes, kAlignment));
  if (data == nullptr) return nullptr;
  std::memset(data, 0xCD, nbytes);
  device.used += accounted;
  const auto base = reinterpret_cast<uintptr_t>(data);
  Block& block = w.blocks[base];
  block = Block{};
  block.base = base;
  block.nbytes = nbytes;
  block.memory = memory;
  block.device = context->device;
  block.context = context;
  block.accounted = accounted;
  return &block;
}

Block* find_block(uintptr_t address) {
  std::map<uintptr_t, Block>& blocks = world().blocks;
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return nullptr;
  --found;
  return address < found->first + found->second.nbytes ? &found->second : nullptr;
}

bool is_pageable(const void* data) {
  const Block* block = find_block(reinterpret_cast<uintptr_t>(data));
  return block == nullptr || block->freed;
}

namespace {

std::string at(CUdeviceptr data, size_t nbytes) {
  std::ostringstream out;
  out << " [0x" << std::hex << data << std::dec << " + " << nbytes << "]";
  return std::move(out).str();
}

/// Walks the blocks that cover a range (mapped ones may lie side by side).
template <typename Test>
bool check_range(CUdeviceptr data, size_t nbytes, const char* what, const Test& wrong) {
  uintptr_t address = data;
  const uintptr_t end = data + nbytes;
  while (address < end) {
    const Block* block = find_block(address);
    const char* problem = block == nullptr ? ": not device memory" : wrong(*block);
    if (problem == nullptr && block->memory != Memory::kMapped &&
        end > block->base + block->nbytes) {
      problem = ": beyond the end of the allocation";
    }
    if (problem != nullptr) {
      misuse(std::string(what) + problem + at(data, nbytes), CUDA_ERROR_INVALID_VALUE);
      return false;
    }
    address = block->base + block->nbytes;
  }
  return true;
}

}  // namespace

bool check_use(CUdeviceptr data, size_t nbytes, const char* entry) {
  return check_range(data, nbytes, entry, [](const Block& block) -> const char* {
    if (block.freed || block.freeing) return ": memory named after it was freed";
    if (!lives_on_device(block.memory)) return ": host memory where device memory is meant";
    return block.accessible ? nullptr : ": mapped memory without access";
  });
}

bool check_access(CUdeviceptr data, size_t nbytes, const char* what) {
  return check_range(data, nbytes, what, [](const Block& block) -> const char* {
    if (block.freed) return ": work touches memory after its free was done";
    if (!block.ready) return ": work touches memory before its allocation was done";
    return block.accessible ? nullptr : ": work touches mapped memory without access";
  });
}

void retire(Block& block) {
  World& w = world();
  block.freed = true;
  w.devices[static_cast<size_t>(block.device)].used -= block.accounted;
  if (block.pool != nullptr) {
    block.pool->used -= round_up(block.nbytes, kAlignment);
    if (block.pool->alive) trim_pool(*block.pool, block.pool->release_threshold);
  }
  std::memset(reinterpret_cast<void*>(block.base), 0xDD, block.nbytes);
  w.quarantine.push_back(block.base);
  if (w.quarantine.size() <= kQuarantine) return;
  std::free(reinterpret_cast<void*>(w.quarantine.front()));
  w.blocks.erase(w.quarantine.front());
  w.quarantine.pop_front();
}

void release_blocks() {
  World& w = world();
  for (auto& [base, block] : w.blocks) {
    if (block.memory != Memory::kRegistered && block.memory != Memory::kMapped) {
      std::free(reinterpret_cast<void*>(base));
    }
  }
  w.blocks.clear();
  w.quarantine.clear();
}

int64_t count_blocks(Memory memory) {
  int64_t count = 0;
  for (const auto& [base, block] : world().blocks) {
    if (block.memory == memory && !block.freed && !block.freeing) ++count;
  }
  return count;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuMemAlloc(CUdeviceptr* data, size_t nbytes) {
  FAKE_ENTER(cuMemAlloc, nbytes);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuMemAlloc")) return result;
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Block* block = add_block(nbytes, Memory::kDevice, context, round_up(nbytes, kAlignment));
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *data = block->base;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFree(CUdeviceptr data) {
  FAKE_ENTER(cuMemFree, data);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuMemFree")) return result;
  Block* block = find_block(data);
  if (block == nullptr || block->base != data || block->freed || block->freeing ||
      (block->memory != Memory::kDevice && block->memory != Memory::kPool)) {
    return misuse("cuMemFree: not an allocation, or freed before", CUDA_ERROR_INVALID_VALUE);
  }
  finish_context(block->context);  // as the real one waits
  block->freeing = true;
  retire(*block);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_ENTER(cuMemGetInfo);
  FAKE_CONTEXT(context);
  const DeviceState& device = world().devices[static_cast<size_t>(context->device)];
  *free = device.total - device.used;
  *total = device.total;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostAlloc(void** data, size_t nbytes, unsigned flags) {
  FAKE_ENTER(cuMemHostAlloc, nbytes, flags);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuMemHostAlloc")) return result;
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Block* block = add_block(nbytes, Memory::kHost, context, 0);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *data = reinterpret_cast<void*>(block->base);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFreeHost(void* data) {
  FAKE_ENTER(cuMemFreeHost, data);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuMemFreeHost")) return result;
  const auto base = reinterpret_cast<uintptr_t>(data);
  Block* block = find_block(base);
  if (block == nullptr || block->base != base || block->freed || block->memory != Memory::kHost) {
    return misuse("cuMemFreeHost: not an allocation, or freed before", CUDA_ERROR_INVALID_VALUE);
  }
  finish_context(block->context);
  retire(*block);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostRegister(void* data, size_t nbytes, unsigned flags) {
  FAKE_ENTER(cuMemHostRegister, data, nbytes, flags);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuMemHostRegister")) return result;
  const auto base = reinterpret_cast<uintptr_t>(data);
  if (data == nullptr || nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (find_block(base) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Block& block = world().blocks[base];
  block = Block{};
  block.base = base;
  block.nbytes = nbytes;
  block.memory = Memory::kRegistered;
  block.device = context->device;
  block.context = context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostUnregister(void* data) {
  FAKE_ENTER(cuMemHostUnregister, data);
  FAKE_CONTEXT(context);
  const auto found = world().blocks.find(reinterpret_cast<uintptr_t>(data));
  if (found == world().blocks.end() || found->second.memory != Memory::kRegistered) {
    return misuse("cuMemHostUnregister: not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  }
  finish_context(found->second.context);
  world().blocks.erase(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                                         void** values, CUdeviceptr data) {
  FAKE_ENTER(cuPointerGetAttributes, count, data);
  const Block* block = find_block(data);
  if (block != nullptr && (block->freed || block->freeing)) block = nullptr;
  const bool host = block != nullptr && !lives_on_device(block->memory);
  const bool managed = block != nullptr && block->memory == Memory::kManaged;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<void**>(values[i]) = block != nullptr ? block->context : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) =
            block == nullptr ? 0U : unsigned{host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE};
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr*>(values[i]) = block != nullptr ? data : 0;
        break;
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *static_cast<CUdeviceptr*>(values[i]) = host || managed ? data : 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned*>(values[i]) = managed ? 1 : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = block != nullptr ? block->device : -2;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = block != nullptr ? block->base : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = block != nullptr ? block->nbytes : 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
