// Fault injection for tests: every place that can fail for reasons outside the program calls
// fault_point(); a test arms the k-th such call to fail. Unarmed, it costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/export.h"

namespace cudaexec {

enum class FaultSite : uint32_t {
  kAllocate = 1u << 0,   // fails with OutOfMemory
  kFile = 1u << 1,       // open, stat, mmap, memfd, read, write: fails with FileError
  kDlopen = 1u << 2,     // fails with TargetError
  kShim = 1u << 3,       // an aoti_torch_* entry: fails with InternalError
  kContainer = 1u << 4,  // a call into generated code reports failure
};

namespace fault_detail {
CUDAEXEC_API extern std::atomic<bool> armed;
CUDAEXEC_API void hit(FaultSite site, const char* what);
}  // namespace fault_detail

/// Throws the site's error if this is the armed call. `what` names the operation in the message.
inline void fault_point(FaultSite site, const char* what) {
  if (fault_detail::armed.load(std::memory_order_relaxed)) [[unlikely]]
    fault_detail::hit(site, what);
}

/// Makes the k-th (from 1) matching call fail once, in any thread. `sites` is a mask of FaultSite.
CUDAEXEC_API void arm_fault(uint32_t sites, int64_t k) noexcept;
/// Disarms; returns the number of matching calls seen since arm_fault().
CUDAEXEC_API int64_t disarm_fault() noexcept;

}  // namespace cudaexec
