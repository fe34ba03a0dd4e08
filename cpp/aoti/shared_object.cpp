#include "aoti/shared_object.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "aoti/captured_stderr.h"
#include "aoti/code_file.h"
#include "aoti/elf_image.h"
#include "aoti/elf_prepare.h"
#include "aoti/thread_exit.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"
#include "device/cpu_features.h"
#include "device/cuda/driver.h"
#include "device/cuda/module_tracker.h"
#include "ops/cuda/cublas.h"

namespace cudaexec {
namespace {

std::atomic<int64_t> live_libraries{0};

// Sanitizers intercept the C library, which deep binding would go round; they abort on it.
#ifdef CUDAEXEC_SANITIZER
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// At most 20 names, so that a message stays readable.
std::string some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  if (names.size() <= kShown) return list_str(names);
  const std::vector<std::string> shown(names.begin(), names.begin() + kShown);
  return str(list_str(shown), " and ", names.size() - kShown, " more");
}

bool glibc_is_older_than(const std::string& needed) {
  const auto parse = [](const char* text) {
    char* end = nullptr;
    const long major = std::strtol(text, &end, 10);
    const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
    return std::pair(major, minor);
  };
  return !needed.empty() && parse(::gnu_get_libc_version()) < parse(needed.c_str());
}

void check_fits(const ElfReport& report, const std::string& name) {
  const std::string missing =
      report.isa.empty() ? std::string() : CpuFeatures::host().missing_for_level(report.isa);
  if (!missing.empty()) {
    throw TargetError(str("library '", name, "' is compiled for ", report.isa, ", this CPU runs ",
                          CpuFeatures::host().level(), " (it lacks ", missing,
                          "); export with a variant for this CPU"));
  }
  if (glibc_is_older_than(report.min_glibc)) {
    throw TargetError(str("library '", name, "' needs glibc ", report.min_glibc,
                          ", this machine has ", ::gnu_get_libc_version(),
                          "; export on an older system"));
  }
  if (!report.unknown_needed.empty()) {
    throw TargetError(str("library '", name, "' needs the libraries ", some(report.unknown_needed),
                          ", which programs may not use; it was not exported without libtorch"));
  }
  if (!report.missing.empty()) {
    throw TargetError(str("library '", name, "' needs ", report.missing.size(),
                          " functions that this runtime does not have: ", some(report.missing),
                          "; export it with a version that matches this runtime, or replace these "
                          "operators in the model"));
  }
}

bool needs(const std::vector<std::string>& needed, const char* library) {
  return std::find(needed.begin(), needed.end(), library) != needed.end();
}

// Workers of libgomp run its code even when no region is active: it must stay mapped.
void pin_libgomp() noexcept {
  static std::atomic<bool> pinned{false};
  if (pinned.load(std::memory_order_relaxed)) return;
  if (::dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr) pinned = true;
}

}  // namespace

SharedObject::SharedObject() : modules_(std::make_shared<cuda::ModuleRegistry>()) {
  live_libraries.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<SharedObject> SharedObject::open(std::span<const std::byte> image,
                                                 const std::string& name) {
  const ElfImage elf(image, name);
  // The driver first: without it every one of its functions would be reported as missing.
  if (needs(elf.needed(), "libcuda.so.1")) (void)cuda::driver();
  const ElfReport report = inspect_elf(image, name);
  check_fits(report, name);
  gpu::require_called_libraries(report.undefined, name);
  std::shared_ptr<SharedObject> library(new SharedObject);
  library->name_ = name;
  {
    const std::vector<std::byte> prepared = prepare_image(image, elf, name);
    library->file_ = std::make_unique<CodeFile>(prepared, name);
  }
  library->path_ = library->file_->path();
  track_thread_exit(library->path_);
  fault_point(FaultSite::kDlopen, "dlopen");
  const StderrCapture capture;
  library->handle_ = ::dlopen(library->path_.c_str(), kOpenFlags);
  if (library->handle_ == nullptr) {
    const char* reason = ::dlerror();
    throw TargetError(str("library '", name,
                          "' cannot be opened: ", reason != nullptr ? reason : "unknown reason"));
  }
  library->file_->opened();
  if (needs(report.needed, "libgomp.so.1")) pin_libgomp();
  return library;
}

SharedObject::~SharedObject() {
  if (handle_ != nullptr) {
    const StderrCapture capture;
    run_thread_exits(path_);
    ::dlclose(handle_);
  }
  if (!path_.empty()) untrack_thread_exit(path_);
  live_libraries.fetch_sub(1, std::memory_order_relaxed);
}

void* SharedObject::symbol(const char* name) const noexcept {
  return ::dlsym(handle_, name);  // searches the libraries it needs as well
}

int64_t SharedObject::live_count() noexcept { return live_libraries.load(); }

}  // namespace cudaexec
