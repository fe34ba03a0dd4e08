// The x86-64 level that this machine runs; code marked with a higher one is refused before it is
// opened.
#pragma once

#include "base/export.h"

namespace cudaexec {

/// 1 (baseline) to 4 (x86-64-v4), as the CPU reports and the operating system saves.
CUDAEXEC_API int cpu_isa_level() noexcept;

}  // namespace cudaexec
