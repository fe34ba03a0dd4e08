#include <cstdlib>

#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/allocator.h"

namespace cudaexec {
namespace {

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t nbytes, StreamRef /*stream*/) override {
    fault_point(FaultSite::kAllocate, "host allocation");
    void* data = nullptr;
    if (::posix_memalign(&data, kDefaultAlignment, nbytes) != 0) {
      throw OutOfMemory(str("cannot allocate ", nbytes, " bytes of host memory"));
    }
    return data;
  }

  void deallocate(void* data, size_t /*nbytes*/, StreamRef /*stream*/) noexcept override {
    std::free(data);
  }
};

}  // namespace

Allocator& cpu_allocator() noexcept {
  static CpuAllocator allocator;
  return allocator;
}

}  // namespace cudaexec
