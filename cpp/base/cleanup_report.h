// Failures of destructors: they cannot throw and must not vanish. They are queued here until Python
// takes them and warns (CudaexecWarning), outside of every lock.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/export.h"

namespace cudaexec {

/// Queues "`what` failed: `why`"; also logged at the warning level. Never throws: when memory is
/// short or kMaxCleanupReports are waiting, the failure is only counted.
CUDAEXEC_API void report_cleanup_failure(const char* what, const std::string& why) noexcept;

inline constexpr size_t kMaxCleanupReports = 64;

struct CleanupReports {
  std::vector<std::string> messages;
  size_t dropped = 0;  // failures beyond the messages
};

/// Whether anything waits; one relaxed load.
CUDAEXEC_API bool has_cleanup_reports() noexcept;
/// Takes what is waiting, oldest first.
CUDAEXEC_API CleanupReports take_cleanup_reports();

}  // namespace cudaexec
