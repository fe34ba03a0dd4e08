#include "ops/cuda/library_search.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/fork_mutex.h"
#include "base/str.h"

namespace cudaexec::gpu {
namespace {

struct Folders {
  ForkMutex mutex;
  std::vector<std::string> paths;
};

Folders& package_folders() {
  static Folders& instance = *new Folders;  // never destroyed: threads outlive statics
  return instance;
}

/// The folder that holds the package, seen from <it>/cudaexec/lib/libcudaexec_shims.so.1.
std::string own_package_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&set_package_folders), &info) == 0) return {};
  std::string path = info.dli_fname;
  for (int up = 0; up < 3; ++up) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {};
    path.resize(slash);
  }
  return path;
}

std::vector<std::string> searched_folders() {
  std::vector<std::string> folders{own_package_folder()};
  Folders& registered = package_folders();
  const std::lock_guard lock(registered.mutex);
  folders.insert(folders.end(), registered.paths.begin(), registered.paths.end());
  return folders;
}

void* open(const std::string& path, int flags) {
  fault_point(FaultSite::kDlopen, "dlopen of an optional NVIDIA library");
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
}

std::string last_error() {
  const char* reason = ::dlerror();
  return reason == nullptr ? "no reason given" : reason;
}

std::string path_of(void* handle, const std::string& asked) {
  char origin[4096] = {};
  if (::dlinfo(handle, RTLD_DI_ORIGIN, origin) != 0) return asked;
  const size_t slash = asked.rfind('/');
  return str(origin, "/", slash == std::string::npos ? asked : asked.substr(slash + 1));
}

/// In a package folder; a file that is there but cannot be opened is noted in `problems`.
OpenedLibrary open_in_packages(const LibraryRequest& request, std::string& problems) {
  for (const std::string& root : searched_folders()) {
    for (const std::string& name : request.names) {
      for (const std::string& folder : request.folders) {
        const std::string path = str(root.empty() ? "." : root, "/", folder, "/", name);
        if (::access(path.c_str(), R_OK) != 0) continue;
        if (void* handle = open(path, 0); handle != nullptr) return {handle, path};
        problems += str("; ", path, " cannot be opened (", last_error(), ")");
      }
    }
  }
  return {nullptr, {}};
}

OpenedLibrary open_by_name(const LibraryRequest& request, int flags) {
  for (const std::string& name : request.names) {
    if (void* handle = open(name, flags); handle != nullptr) {
      return {handle, path_of(handle, name)};
    }
  }
  return {nullptr, {}};
}

}  // namespace

void set_package_folders(std::vector<std::string> folders) {
  Folders& registered = package_folders();
  const std::lock_guard lock(registered.mutex);
  registered.paths = std::move(folders);
}

OpenedLibrary open_optional_library(const LibraryRequest& request) {
  const char* fixed = std::getenv(request.variable);
  if (fixed != nullptr && *fixed != '\0') {
    if (void* handle = open(fixed, 0); handle != nullptr) return {handle, fixed};
    throw NotSupported(str("the library that ", request.variable, " names, ", fixed,
                           ", cannot be opened: ", last_error(), "; correct or unset it"));
  }
  if (const OpenedLibrary found = open_by_name(request, RTLD_NOLOAD); found.handle != nullptr) {
    return found;
  }
  std::string problems;
  if (const OpenedLibrary found = open_in_packages(request, problems); found.handle != nullptr) {
    return found;
  }
  if (const OpenedLibrary found = open_by_name(request, 0); found.handle != nullptr) return found;
  std::string names;
  for (const std::string& name : request.names) names += str(names.empty() ? "" : " or ", name);
  throw NotSupported(str("the program needs ", names, ", found neither in the process, nor under ",
                         request.folders.front(), " in ", searched_folders().size(),
                         " package folders, nor in the system", problems, "; ", request.advice,
                         ", or set ", request.variable, " to the library's path"));
}

}  // namespace cudaexec::gpu
