#include "base/fault.h"

#include <string>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace fault_detail {

std::atomic<bool> armed{false};
namespace {
std::atomic<uint32_t> armed_sites{0};
std::atomic<int64_t> remaining{0};
std::atomic<int64_t> seen{0};
}  // namespace

void hit(FaultSite site, const char* what) {
  if ((armed_sites.load() & static_cast<uint32_t>(site)) == 0) return;
  seen.fetch_add(1);
  if (remaining.fetch_sub(1) != 1) return;
  const std::string message = str("injected fault: ", what);
  switch (site) {
    case FaultSite::kAllocate:
      throw OutOfMemory(message);
    case FaultSite::kFile:
      throw FileError(message);
    case FaultSite::kDlopen:
      throw TargetError(message);
    case FaultSite::kShim:
    case FaultSite::kContainer:
      throw InternalError(message);
  }
}

}  // namespace fault_detail

void arm_fault(uint32_t sites, int64_t k) noexcept {
  fault_detail::armed_sites.store(sites);
  fault_detail::remaining.store(k);
  fault_detail::seen.store(0);
  fault_detail::armed.store(true);
}

int64_t disarm_fault() noexcept {
  fault_detail::armed.store(false);
  return fault_detail::seen.load();
}

}  // namespace cudaexec
