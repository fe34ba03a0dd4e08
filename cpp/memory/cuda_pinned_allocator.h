// Page-locked host memory: copies between it and a GPU are asynchronous and fast.
#pragma once

#include "base/export.h"
#include "memory/allocator.h"

namespace cudaexec {

/// Usable with every GPU; allocating is slow, so wrap it in a CachingAllocator or keep the memory.
/// Memory may be given back only once no copy uses it. Thread-safe; lives as long as the process.
/// @throws DeviceError if there is no GPU.
CUDAEXEC_API Allocator& cuda_pinned_allocator();

}  // namespace cudaexec
