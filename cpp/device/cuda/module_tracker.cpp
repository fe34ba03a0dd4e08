#include "device/cuda/module_tracker.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace cudaexec::cuda {
namespace {

std::atomic<int64_t> live{0};

}  // namespace

int64_t live_modules() noexcept { return live.load(); }

CUresult ModuleRegistry::acquire(const void* image, CUmodule* module) noexcept {
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  CUcontext context = nullptr;
  if (const CUresult result = api->cuCtxGetCurrent(&context); result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // Held while loading: two first runs of the same kernel load it once.
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.image == image && entry.module.context() == context) {
      ++entry.uses;
      *module = entry.module.get();
      return CUDA_SUCCESS;
    }
  }
  try {
    entries_.reserve(entries_.size() + 1);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmodule loaded = nullptr;
  if (const CUresult result = api->cuModuleLoadData(&loaded, image); result != CUDA_SUCCESS) {
    return result;
  }
  entries_.push_back({image, ModuleHandle(loaded, context), 1});
  live.fetch_add(1);
  *module = loaded;
  return CUDA_SUCCESS;
}

bool ModuleRegistry::release(CUmodule module) noexcept {
  ModuleHandle last;  // unloaded after the lock is gone
  {
    const std::lock_guard lock(mutex_);
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [module](const Entry& held) {
      return held.module.get() == module;
    });
    if (entry == entries_.end()) return false;
    if (--entry->uses != 0) return true;
    last = std::move(entry->module);
    entries_.erase(entry);
  }
  live.fetch_sub(1);
  return true;
}

size_t ModuleRegistry::module_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

ModuleTracker::ModuleTracker(std::shared_ptr<ModuleRegistry> registry) noexcept
    : registry_(std::move(registry)) {}

ModuleTracker::~ModuleTracker() {
  for (CUmodule module : held_) registry_->release(module);
}

CUresult ModuleTracker::load(const void* image, CUmodule* module) noexcept {
  try {
    held_.reserve(held_.size() + 1);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = registry_->acquire(image, module);
  if (result == CUDA_SUCCESS) held_.push_back(*module);
  return result;
}

bool ModuleTracker::unload(CUmodule module) noexcept {
  const auto found = std::find(held_.begin(), held_.end(), module);
  if (found == held_.end()) return false;
  held_.erase(found);
  return registry_->release(module);
}

}  // namespace cudaexec::cuda
