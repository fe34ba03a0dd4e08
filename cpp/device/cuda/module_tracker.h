// The GPU code of generated libraries. Their cuModuleLoadData and cuModuleUnload calls arrive here
// (interposers.cpp), so that the containers of one library share modules and all of them are
// unloaded with the last container, also by libraries that never unload anything themselves
// (torch 2.11).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/driver.h"
#include "device/cuda/handles.h"

namespace cudaexec::cuda {

/// The modules of one opened library, by image address and context. Thread-safe.
class CUDAEXEC_API ModuleRegistry {
 public:
  /// The module of `image` in the current context, loaded if nobody holds it; counts one use.
  CUresult acquire(const void* image, CUmodule* module) noexcept;
  /// Ends one use; the last one unloads the module. False if the module is not of this registry.
  bool release(CUmodule module) noexcept;
  [[nodiscard]] size_t module_count() const noexcept;

 private:
  struct Entry {
    const void* image;
    ModuleHandle module;
    size_t uses;
  };
  mutable ForkMutex mutex_;
  std::vector<Entry> entries_;
};

/// What one container holds of a registry; releases the rest when destroyed. Destroy it before the
/// library is closed, since images are told apart by address. Used by one thread at a time.
class CUDAEXEC_API ModuleTracker {
 public:
  explicit ModuleTracker(std::shared_ptr<ModuleRegistry> registry) noexcept;
  ~ModuleTracker();
  ModuleTracker(const ModuleTracker&) = delete;
  ModuleTracker& operator=(const ModuleTracker&) = delete;

  CUresult load(const void* image, CUmodule* module) noexcept;
  /// False if this tracker does not hold the module.
  bool unload(CUmodule module) noexcept;

 private:
  std::shared_ptr<ModuleRegistry> registry_;
  std::vector<CUmodule> held_;  // one entry per load
};

/// Modules loaded through any registry and not unloaded: leak tests compare it.
CUDAEXEC_API int64_t live_modules() noexcept;

}  // namespace cudaexec::cuda
