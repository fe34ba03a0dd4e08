// Virtual memory: reserved addresses, physical memory, mappings. Real mappings of the host, so one
// piece of physical memory can be seen at two addresses.
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

namespace fakecuda {
namespace {

constexpr size_t kGranularity = size_t{2} << 20;

bool inside_reservation(uintptr_t address, size_t nbytes) {
  auto found = world().reservations.upper_bound(address);
  if (found == world().reservations.begin()) return false;
  --found;
  return address + nbytes <= found->first + found->second;
}

bool hide(uintptr_t address, size_t nbytes) {
  return ::mmap(reinterpret_cast<void*>(address), nbytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/// Physical memory goes when it was released and nothing maps it.
void drop_if_unused(CUmemGenericAllocationHandle handle) {
  const auto found = world().physical.find(handle);
  if (found == world().physical.end() || !found->second.released || found->second.mappings != 0) {
    return;
  }
  ::close(found->second.fd);
  world().devices[static_cast<size_t>(found->second.device)].used -= found->second.nbytes;
  world().physical.erase(found);
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuMemGetAllocationGranularity(size_t* granularity,
                                                const CUmemAllocationProp* properties,
                                                CUmemAllocationGranularity_flags option) {
  FAKE_ENTER(cuMemGetAllocationGranularity, option);
  const auto device = static_cast<size_t>(properties->location.id);
  if (device >= world().devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  if (!world().devices[device].virtual_memory) return CUDA_ERROR_NOT_SUPPORTED;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAddressReserve(CUdeviceptr* data, size_t nbytes, size_t alignment,
                                      CUdeviceptr wanted, unsigned long long flags) {
  FAKE_ENTER(cuMemAddressReserve, nbytes, alignment, wanted, flags);
  if (nbytes == 0 || nbytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  // One granule more, to align; the rest goes back.
  void* mapped = ::mmap(nullptr, nbytes + kGranularity, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t base = round_up(start, kGranularity);
  if (base > start) ::munmap(mapped, base - start);
  ::munmap(reinterpret_cast<void*>(base + nbytes), kGranularity - (base - start));
  world().reservations[base] = nbytes;
  *data = base;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAddressFree(CUdeviceptr data, size_t nbytes) {
  FAKE_ENTER(cuMemAddressFree, data, nbytes);
  const auto found = world().reservations.find(data);
  if (found == world().reservations.end() || found->second != nbytes) {
    return misuse("cuMemAddressFree: not a whole reservation", CUDA_ERROR_INVALID_VALUE);
  }
  for (const auto& [base, block] : world().blocks) {
    if (block.memory == Memory::kMapped && base >= data && base < data + nbytes) {
      return misuse("cuMemAddressFree: still mapped", CUDA_ERROR_INVALID_VALUE);
    }
  }
  ::munmap(reinterpret_cast<void*>(data), nbytes);
  world().reservations.erase(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t nbytes,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
  FAKE_ENTER(cuMemCreate, nbytes, flags);
  const auto index = static_cast<size_t>(properties->location.id);
  if (index >= world().devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult result = check_unsafe("cuMemCreate")) return result;
  if (nbytes == 0 || nbytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  DeviceState& device = world().devices[index];
  if (device.used + nbytes > device.total) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = ::memfd_create("fakecuda", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (::ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
    ::close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  device.used += nbytes;
  *handle = world().next_physical++;
  world().physical[*handle] = {nbytes, properties->location.id, fd, 0, false};
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_ENTER(cuMemRelease, handle);
  const auto found = world().physical.find(handle);
  if (found == world().physical.end() || found->second.released) {
    return misuse("cuMemRelease: not an allocation, or released before", CUDA_ERROR_INVALID_VALUE);
  }
  found->second.released = true;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemMap(CUdeviceptr data, size_t nbytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags) {
  FAKE_ENTER(cuMemMap, data, nbytes, offset, handle, flags);
  FAKE_CONTEXT(context);
  const auto found = world().physical.find(handle);
  if (found == world().physical.end() || found->second.released) {
    return misuse("cuMemMap: not an allocation, or released before", CUDA_ERROR_INVALID_VALUE);
  }
  if (offset != 0 || flags != 0 || nbytes != found->second.nbytes || data % kGranularity != 0 ||
      !inside_reservation(data, nbytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Block* there = find_block(data);
  if (there != nullptr) return misuse("cuMemMap: mapped already", CUDA_ERROR_INVALID_VALUE);
  if (::mmap(reinterpret_cast<void*>(data), nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             found->second.fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++found->second.mappings;
  Block& block = world().blocks[data];
  block = Block{};
  block.base = data;
  block.nbytes = nbytes;
  block.memory = Memory::kMapped;
  block.device = found->second.device;
  block.context = context;
  block.accessible = false;
  block.physical = handle;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemUnmap(CUdeviceptr data, size_t nbytes) {
  FAKE_ENTER(cuMemUnmap, data, nbytes);
  if (const CUresult result = check_unsafe("cuMemUnmap")) return result;
  std::map<uintptr_t, Block>& blocks = world().blocks;
  uintptr_t address = data;
  while (address < data + nbytes) {
    const auto found = blocks.find(address);
    if (found == blocks.end() || found->second.memory != Memory::kMapped) {
      return misuse("cuMemUnmap: not a whole mapping", CUDA_ERROR_INVALID_VALUE);
    }
    const Block block = found->second;
    finish_context(block.context);  // work that is still to run would fault on a real device
    hide(block.base, block.nbytes);
    blocks.erase(found);
    --world().physical[block.physical].mappings;
    drop_if_unused(block.physical);
    address += block.nbytes;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemSetAccess(CUdeviceptr data, size_t nbytes, const CUmemAccessDesc* access,
                                 size_t count) {
  FAKE_ENTER(cuMemSetAccess, data, nbytes, count);
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::map<uintptr_t, Block>& blocks = world().blocks;
  for (uintptr_t address = data; address < data + nbytes;) {
    const auto found = blocks.find(address);
    if (found == blocks.end() || found->second.memory != Memory::kMapped) {
      return misuse("cuMemSetAccess: not mapped", CUDA_ERROR_INVALID_VALUE);
    }
    address += found->second.nbytes;
  }
  const bool on = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ::mprotect(reinterpret_cast<void*>(data), nbytes, on ? PROT_READ | PROT_WRITE : PROT_NONE);
  for (uintptr_t address = data; address < data + nbytes;) {
    Block& block = blocks[address];
    block.accessible = on;
    address += block.nbytes;
  }
  return CUDA_SUCCESS;
}
