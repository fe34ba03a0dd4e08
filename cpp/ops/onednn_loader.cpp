#include "ops/onednn_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "base/version.h"

namespace cudaexec::ops {
namespace {

std::string library_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&onednn_functions), &info) == 0) return {};
  const std::string own = info.dli_fname;
  const size_t slash = own.rfind('/');
  const std::string folder = slash == std::string::npos ? std::string() : own.substr(0, slash + 1);
  return folder + "libcudaexec_onednn.so";
}

/// Its OpenMP calls have to reach our thread pool and not libgomp or torch's copy of oneDNN: deep
/// binding looks into its own needed libraries first, of which ours comes before libdnnl and
/// libgomp.
const OnednnFunctions* open_library(const std::string& path) {
  fault_point(FaultSite::kDlopen, "dlopen libcudaexec_onednn.so");
#if defined(CUDAEXEC_SANITIZER)
  const int binding = 0;
#else
  const int binding = RTLD_DEEPBIND;
#endif
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | binding);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw NotSupported(str("convolution: cannot open ", path, ": ", reason == nullptr ? "" : reason,
                           "; reinstall cudaexec, or remove the file to use slower kernels"));
  }
  using Entry = const OnednnFunctions* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kOnednnEntry));
  const OnednnFunctions* functions = entry != nullptr ? entry() : nullptr;
  if (functions == nullptr || std::string(functions->version) != kVersion) {
    throw NotSupported(str("convolution: ", path, " is not of cudaexec ", kVersion, " but of ",
                           functions == nullptr ? "something else" : functions->version,
                           "; reinstall cudaexec"));
  }
  return functions;
}

}  // namespace

const OnednnFunctions* onednn_functions() {
  static std::atomic<const OnednnFunctions*> opened{nullptr};
  static ForkMutex opening;
  const OnednnFunctions* functions = opened.load(std::memory_order_acquire);
  if (functions != nullptr) return functions;
  const std::lock_guard lock(opening);
  if (opened.load() != nullptr) return opened.load();
  const std::string path = library_path();
  if (access(path.c_str(), F_OK) != 0) return nullptr;
  functions = open_library(path);
  opened.store(functions, std::memory_order_release);
  return functions;
}

}  // namespace cudaexec::ops
