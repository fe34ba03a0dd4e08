#include "format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/fault.h"
#include "base/path_error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

/// Closes the descriptor when the scope ends; the mapping does not need it.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void throw_file_error(const std::string& path, const char* operation, int error) {
  throw PathError(str(path, ": ", operation, " failed: ", std::generic_category().message(error)),
                  error, path);
}

int open_for_reading(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw PathError(str("path of ", path.size(), " bytes holds a NUL byte"), EINVAL, path);
  fault_point(FaultSite::kFile, "open of a model file");
  int fd = -1;
  do {
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw_file_error(path, "open", errno);
  return fd;
}

FileIdentity identity_of(const struct stat& info) noexcept {
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
          static_cast<uint64_t>(info.st_size),
          static_cast<int64_t>(info.st_mtim.tv_sec) * kNanoseconds + info.st_mtim.tv_nsec};
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  std::shared_ptr<MappedFile> file(new MappedFile(path));
  const Descriptor fd(open_for_reading(path));

  struct stat info{};
  fault_point(FaultSite::kFile, "stat of a model file");
  if (::fstat(fd.get(), &info) != 0) throw_file_error(path, "stat", errno);
  if (!S_ISREG(info.st_mode))
    throw PathError(
        str(path, ": ", S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file",
            "; a .pte or .ptd file is expected"),
        S_ISDIR(info.st_mode) ? EISDIR : EINVAL, path);
  if (info.st_size == 0) throw FormatError(str(path, ", offset 0: the file is empty"));
  file->identity_ = identity_of(info);

  const auto nbytes = static_cast<size_t>(info.st_size);
  fault_point(FaultSite::kFile, "mmap of a model file");
  void* address = ::mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) throw_file_error(path, "mmap", errno);
  file->bytes_ = {static_cast<const std::byte*>(address), nbytes};
  return file;
}

MappedFile::~MappedFile() {
  // munmap fails for a range that was never mapped only.
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace cudaexec
