// The off-graph KV cache of one session: address space for all of its context, reserved once, and
// memory that grows with the tokens. A call is a step: prepare, run, then commit or abandon.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "format/manifest.h"
#include "memory/page_backend.h"
#include "ops/kv_step.h"
#include "runtime/kv_device.h"
#include "runtime/kv_layout.h"
#include "runtime/kv_pages.h"
#include "runtime/module.h"

namespace cudaexec {

/// What the caches of one program have in common. Thread-safe.
class CUDAEXEC_API KvProgram {
 public:
  /// `gpu`: null on the CPU. @throws NotSupported, OutOfMemory, DeviceError, FileError.
  KvProgram(KvCacheSpec spec, CudaDevice* gpu);
  [[nodiscard]] const KvCacheSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const KvLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] CudaDevice* gpu() const noexcept { return gpu_; }
  /// A forked child gets one of its own.
  [[nodiscard]] std::shared_ptr<PageBackend> backend();

 private:
  const KvCacheSpec spec_;
  CudaDevice* const gpu_;
  ForkMutex mutex_;
  std::shared_ptr<PageBackend> backend_;
  KvLayout layout_;
};

/// One caller at a time, but position(). On a GPU the caller orders a step's stream behind all
/// earlier steps, and has waited for all of them where it says so.
class CUDAEXEC_API KvCache {
 public:
  /// @throws OutOfMemory, DeviceError.
  explicit KvCache(std::shared_ptr<KvProgram> program);
  /// After waiting.
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// Tokens of the steps that were committed. Thread-safe.
  [[nodiscard]] int64_t position() const noexcept { return position_.load(); }
  /// The most tokens that fit; the largest int64 if all layers are rings.
  [[nodiscard]] int64_t capacity() const noexcept { return program_->layout().capacity; }
  [[nodiscard]] KvBytes usage() const noexcept;

  /// Makes room for `width` > 0 tokens; what the run of the step needs, valid until the next call.
  /// `what` begins messages. Nothing that was committed changes if it throws.
  /// @throws ContextFull, OutOfMemory, FileError, DeviceError; NotSupported in a forked child;
  /// InputError if the GPU found an earlier step's positions wrong: the cache is then as before it.
  const KvStep& prepare(int64_t width, StreamRef stream, const std::string& what);
  /// The last step; before the first one, its addresses.
  [[nodiscard]] const KvStep& step() const noexcept { return step_; }
  /// On a GPU: gives the page that the token after this step needs memory, while the GPU works on
  /// the step. That it failed is the next step's business.
  void map_ahead() noexcept;
  /// The step is part of the history.
  void commit() noexcept;
  /// Throws InputError if the GPU has found a step's positions wrong; the cache is as before it.
  void check_fault(const std::string& what);

  /// Forgets the tokens from `position` on. After waiting. @throws InputError if there are not as
  /// many, or a ring no longer has the window before it; then nothing changed.
  void rewind(int64_t position);
  /// Forgets all tokens; memory stays. After waiting. In a forked child: starts anew, with no
  /// memory. @throws OutOfMemory.
  void reset();
  /// A cache with the same tokens, in the same memory until one of the two writes there. After
  /// waiting. @throws OutOfMemory, FileError, DeviceError, InputError as check_fault().
  [[nodiscard]] std::unique_ptr<KvCache> fork(const std::string& what);

 private:
  void build();
  void require_usable(const std::string& what) const;
  void make_room(const KvGroup& group, KvPages& pages, int64_t width, StreamRef stream);

  std::shared_ptr<KvProgram> program_;
  std::shared_ptr<PageBackend> backend_;
  std::unique_ptr<KvDevice> device_;             // on a GPU
  std::vector<std::unique_ptr<KvPages>> pages_;  // by group
  std::vector<KvLayerView> layers_;
  KvStep step_;
  std::atomic<int64_t> position_{0};
  int64_t written_ = 0;  // end of the tokens that slots may have been overwritten with
};

}  // namespace cudaexec
