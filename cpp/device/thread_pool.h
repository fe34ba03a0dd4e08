// The one pool of worker threads of the process. Kernels of ours call parallel_for(); OpenMP
// regions of generated code and of oneDNN arrive through the GOMP_* entry points (device/gomp.cpp),
// so `threads=`, CPU affinity and fork are dealt with in one place.
#pragma once

#include <cstdint>
#include <functional>

#include "base/export.h"

namespace cudaexec {

/// Threads that a parallel region may use by default: the CPUs of the process's affinity mask, less
/// if OMP_NUM_THREADS or a cgroup quota says so; at least 1.
CUDAEXEC_API int default_threads() noexcept;

/// Limits regions started by this thread while it lives; 0 means default_threads(). A limit above
/// the allowed CPUs is clamped to them.
class CUDAEXEC_API ThreadLimit {
 public:
  explicit ThreadLimit(int threads) noexcept;
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int previous_;
};

/// Threads a region started now by this thread would use; 1 inside a region.
CUDAEXEC_API int current_threads() noexcept;

/// Runs `body(thread, count)` once for each thread of a team of at most `max_threads` (0: the
/// limit); the caller is thread 0. Returns when all are done. Nested calls run with a team of one.
/// The first exception thrown by a body is rethrown here after all have finished.
CUDAEXEC_API void parallel_region(int max_threads,
                                  const std::function<void(int thread, int count)>& body);

/// Splits [0, count) into contiguous ranges of at least `grain` and runs `body(begin, end)` on
/// each.
CUDAEXEC_API void parallel_for(int64_t count, int64_t grain,
                               const std::function<void(int64_t begin, int64_t end)>& body);

/// Worker threads alive (without the callers).
CUDAEXEC_API int worker_count() noexcept;

}  // namespace cudaexec
