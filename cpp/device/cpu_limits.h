// How many CPUs this process may use. Read once per process; a forked child reads again.
#pragma once

#include <sched.h>

#include "base/export.h"

namespace cudaexec {

struct CpuLimits {
  int allowed = 1;  // CPUs of the process's affinity mask, less where a cgroup quota gives less
  int threads = 1;  // the same, less where OMP_NUM_THREADS says so
  cpu_set_t mask;   // of the process; empty if unknown
};

/// Reads the limits anew. Never fails: what cannot be read does not limit.
CpuLimits read_cpu_limits() noexcept;

/// CPUs that the quotas of the process's cgroups (v1 and v2) amount to, rounded up; 0 without a
/// quota. `root` replaces "/" (tests).
CUDAEXEC_API int cgroup_cpus(const char* root) noexcept;

}  // namespace cudaexec
