#include "aoti/code_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace cudaexec {
namespace {

uint64_t next_number() noexcept {
  static std::atomic<uint64_t> number{0};
  return number.fetch_add(1);
}

std::string system_message(const char* call) { return str(call, ": ", std::strerror(errno)); }

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

// Whether the system lets us run code from the file: not on file systems mounted noexec.
bool can_execute(int fd) {
  void* page = ::mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  if (page == MAP_FAILED) return false;
  ::munmap(page, 1);
  return true;
}

int create_memory(const char* name) {
  // Kernels before 6.3 do not know MFD_EXEC; later ones may be set up to refuse it.
  for (const unsigned kind : {MFD_EXEC, 0U, MFD_NOEXEC_SEAL}) {
    const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kind);
    if (fd >= 0 || (errno != EINVAL && errno != EACCES)) return fd;
  }
  return -1;
}

// "/proc/<pid>/fd/<fd>" with the bits of `number` in redundant slashes: "/" is 0 and "/./" is 1.
std::string unique_spelling(int fd, uint64_t number) {
  std::string path = str("/proc/", ::getpid(), "/fd");
  for (; number != 0; number >>= 1) path += (number & 1) != 0 ? "/./" : "/";
  return path + "/" + std::to_string(fd);
}

std::string printable(const std::string& name) {
  std::string result = name.substr(0, 64);
  for (char& c : result) {
    if (std::strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", c) ==
            nullptr ||
        c == '\0') {
      c = '_';
    }
  }
  return result.empty() ? "code" : result;
}

}  // namespace

CodeFile::CodeFile(std::span<const std::byte> image, const std::string& name) {
  try {
    std::string reasons;
    if (make_memory(image, name, reasons)) return;
    std::vector<std::string> parents;
    if (const char* chosen = std::getenv("TMPDIR")) parents.emplace_back(chosen);
    for (const char* usual : {"/tmp", "/dev/shm", "/var/tmp"}) parents.emplace_back(usual);
    for (const std::string& parent : parents) {
      if (make_file(parent, image, reasons)) return;
    }
    throw FileError(
        str("no place to open the code of '", name, "' (", image.size(), " bytes) from: ", reasons,
            "; set TMPDIR to a directory that can be written and is not mounted noexec"));
  } catch (...) {
    remove();
    throw;
  }
}

CodeFile::CodeFile(CodeFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      directory_(std::exchange(other.directory_, {})) {}

CodeFile::~CodeFile() { remove(); }

bool CodeFile::make_memory(std::span<const std::byte> image, const std::string& name,
                           std::string& why) {
  fault_point(FaultSite::kFile, "memfd_create");
  fd_ = create_memory(("cudaexec:" + printable(name)).c_str());
  if (fd_ < 0) {
    why += system_message("memfd_create");
    return false;
  }
  fault_point(FaultSite::kFile, "write code to memory");
  if (write_all(fd_, image)) {
    // Nobody may change code that runs.
    ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    path_ = unique_spelling(fd_, next_number());
    const int again = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);  // fails without /proc
    const bool usable = again >= 0 && can_execute(again);
    if (!usable) why += system_message(again < 0 ? path_.c_str() : "mmap of anonymous memory");
    if (again >= 0) ::close(again);
    if (usable) return true;
  } else {
    why += system_message("write to anonymous memory");
  }
  remove();
  return false;
}

bool CodeFile::make_file(const std::string& parent, std::span<const std::byte> image,
                         std::string& why) {
  fault_point(FaultSite::kFile, "create private directory");
  std::string directory = parent + "/cudaexec-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) {
    why += "; " + system_message(parent.c_str());
    return false;
  }
  directory_ = directory;
  path_ = str(directory_, "/", next_number(), ".so");
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  fault_point(FaultSite::kFile, "write code to a file");
  if (fd_ >= 0 && write_all(fd_, image) && can_execute(fd_)) return true;
  why += "; " + system_message(path_.c_str());
  remove();
  return false;
}

void CodeFile::opened() noexcept {
  if (!directory_.empty()) remove();
}

void CodeFile::remove() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (directory_.empty()) return;
  ::unlink(path_.c_str());
  ::rmdir(directory_.c_str());
  directory_.clear();
}

}  // namespace cudaexec
