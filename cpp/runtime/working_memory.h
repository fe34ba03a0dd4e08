// The memory of a Module's calls: outputs, intermediates, copies of inputs. Outputs may outlive the
// Module, and generated code allocates them through a plain reference, so the allocator frees
// itself when its owner has let go and the last block has come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "memory/caching_allocator.h"
#include "memory/limiting_allocator.h"
#include "memory/statistics_allocator.h"

namespace cudaexec {

class WorkingMemory final : public Allocator {
 public:
  struct Release {
    void operator()(WorkingMemory* memory) const noexcept { memory->retire(); }
  };
  using Owner = std::unique_ptr<WorkingMemory, Release>;

  /// Memory of the host. `limit`: most bytes held, cached ones included; 0: unlimited.
  static Owner create(size_t limit);
  /// Memory from `upstream`, which lives as long as the process and keeps memory for reuse itself.
  /// `limit`: most bytes in use.
  static Owner create(size_t limit, Allocator& upstream);

  /// As above, over a cache of its own, which it returns when its owner lets go.
  static Owner create(size_t limit, std::unique_ptr<Allocator> cache);

  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;
  /// What to do where the limit is reached, or memory runs out, before that is an error. Returns
  /// whether it gave anything back. Set before the first use; called by any thread.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }
  size_t trim() noexcept override { return caches_ ? caching_.trim() : limiting_.trim(); }

  [[nodiscard]] size_t current() const noexcept { return statistics_.current(); }
  [[nodiscard]] size_t peak() const noexcept { return statistics_.peak(); }
  /// Kept here for reuse; an upstream's own cache does not count.
  [[nodiscard]] size_t cached() const noexcept { return caching_.cached(); }
  /// Objects alive in the process: leak tests compare it.
  CUDAEXEC_API static int64_t live_count() noexcept;

 private:
  WorkingMemory(size_t limit, Allocator& upstream, bool caches,
                std::unique_ptr<Allocator> cache = nullptr) noexcept;
  ~WorkingMemory() override;
  /// The owner lets go: cached memory is returned at once, the rest when it comes back.
  void retire() noexcept;
  void drop_reference() noexcept;

  void return_cached() noexcept;

  const bool caches_;
  std::unique_ptr<Allocator> cache_;  // null, or the upstream of the limit
  LimitingAllocator limiting_;
  CachingAllocator caching_;  // unused where the upstream caches
  StatisticsAllocator statistics_;
  std::function<bool()> reclaim_;
  std::atomic<bool> retired_{false};
  std::atomic<int64_t> references_{1};  // the owner and every block that is out
};

}  // namespace cudaexec
