// Parts of the thread pool that its other files and its tests use.
#pragma once

#include <cstdint>

#include "base/export.h"

namespace cudaexec {

/// How long a thread of a region spins before it sleeps: short when more threads may be running
/// than there are CPUs.
int64_t spin_budget_ns() noexcept;

/// CPUs that regions may use; the value of read_cpu_limits() unless a test has set another.
CUDAEXEC_API int allowed_threads() noexcept;

/// Tests: pretends that `threads` CPUs are allowed; 0 restores what the system says.
CUDAEXEC_API void override_allowed_threads(int threads) noexcept;

}  // namespace cudaexec
