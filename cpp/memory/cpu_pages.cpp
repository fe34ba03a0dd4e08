#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "memory/page_backend.h"

namespace cudaexec {
namespace {

constexpr size_t kCpuGranularity = size_t{64} << 10;

/// Pages are ranges of one anonymous file, so two address ranges can show the same bytes. A forked
/// child shares the file with its parent: it must leave it alone.
class CpuPages final : public PageBackend {
 public:
  CpuPages() : owner_(::getpid()) {
    fault_point(FaultSite::kFile, "memfd_create");
    file_ = ::memfd_create("cudaexec-kv", MFD_CLOEXEC);
    if (file_ < 0) fail_file("memfd_create");
  }
  ~CpuPages() override { ::close(file_); }
  CpuPages(const CpuPages&) = delete;
  CpuPages& operator=(const CpuPages&) = delete;

  [[nodiscard]] Device device() const noexcept override { return {}; }
  [[nodiscard]] size_t granularity() const noexcept override { return kCpuGranularity; }
  [[nodiscard]] bool is_usable() const noexcept override { return ::getpid() == owner_; }

  [[nodiscard]] std::byte* reserve(size_t nbytes) override {
    fault_point(FaultSite::kAllocate, "address space");
    void* base = ::mmap(nullptr, nbytes, PROT_NONE, kHidden, -1, 0);
    if (base == MAP_FAILED) {
      throw OutOfMemory(str("cannot reserve ", nbytes,
                            " bytes of address space: ", std::strerror(errno),
                            "; raise the limit on address space (ulimit -v)"));
    }
    return static_cast<std::byte*>(base);
  }

  void unreserve(std::byte* base, size_t nbytes) noexcept override {
    if (::munmap(base, nbytes) != 0) report_cleanup_failure("munmap", std::strerror(errno));
  }

  [[nodiscard]] uint64_t create(size_t nbytes) override {
    fault_point(FaultSite::kAllocate, "page");
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t>& free = free_[nbytes];
    const uint64_t offset = free.empty() ? end_ : free.back();
    free.reserve(free.size() + 1);
    // Memory is taken here: what is missing later would be a SIGBUS.
    int result = 0;
    do {
      result = ::fallocate(file_, 0, static_cast<off_t>(offset), static_cast<off_t>(nbytes));
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
      throw OutOfMemory(str("cannot allocate a page of ", nbytes, " bytes: ", std::strerror(errno),
                            "; free host memory, or close sessions"));
    }
    if (offset == end_) {
      end_ += nbytes;
    } else {
      free.pop_back();
    }
    return offset;
  }

  void destroy(uint64_t page, size_t nbytes) noexcept override {
    if (!is_usable()) return;
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(file_, mode, static_cast<off_t>(page), static_cast<off_t>(nbytes)) != 0) {
      report_cleanup_failure("fallocate", std::strerror(errno));
    }
    const std::lock_guard lock(mutex_);
    try {
      free_[nbytes].push_back(page);
    } catch (const std::bad_alloc&) {
      report_cleanup_failure("freeing a page", "no memory to remember its place in the file");
    }
  }

  void map(std::byte* address, uint64_t page, size_t nbytes) override {
    fault_point(FaultSite::kFile, "mmap");
    if (::mmap(address, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
               static_cast<off_t>(page)) == MAP_FAILED) {
      fail_file("mmap of a page");
    }
  }

  void unmap(std::byte* address, size_t nbytes) override {
    fault_point(FaultSite::kFile, "mmap");
    if (::mmap(address, nbytes, PROT_NONE, kHidden | MAP_FIXED, -1, 0) == MAP_FAILED) {
      fail_file("mmap over a page");
    }
  }

 private:
  static constexpr int kHidden = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

  [[noreturn]] static void fail_file(const char* what) {
    const int error = errno;
    throw FileError(str(what, " failed: ", std::strerror(error),
                        "; the limits on files, mappings (vm.max_map_count) or memory may be low"),
                    error);
  }

  const pid_t owner_;
  int file_ = -1;
  ForkMutex mutex_;
  uint64_t end_ = 0;                              // of the file
  std::map<size_t, std::vector<uint64_t>> free_;  // offsets, by size
};

}  // namespace

std::shared_ptr<PageBackend> make_cpu_pages() { return std::make_shared<CpuPages>(); }

}  // namespace cudaexec
