// Finding NVIDIA's optional libraries (cuBLAS), which nothing links to: in the process, beside us
// among the Python packages, or installed in the system.
#pragma once

#include <string>
#include <vector>

#include "base/export.h"

namespace cudaexec::gpu {

/// What to look for.
struct LibraryRequest {
  std::vector<std::string> names;    // "libcublasLt.so.13", best first
  std::vector<std::string> folders;  // in a package folder: "nvidia/cu13/lib"
  const char* variable;              // environment variable with the path of the library
  const char* advice;                // "pip install nvidia-cublas"
};

/// Folders that may hold a folder `nvidia` with packages in it (sys.path); searched after the one
/// that cudaexec is installed in. Thread-safe.
CUDAEXEC_API void set_package_folders(std::vector<std::string> folders);

/// Opens the first of: the path in the environment variable (alone, if it is set); a library of one
/// of the names that the process has open already, as torch's; one in a package folder; one of the
/// system. Returns dlopen's handle and the path. @throws NotSupported saying where it was looked
/// for and what to install.
struct OpenedLibrary {
  void* handle;
  std::string path;
};
CUDAEXEC_API OpenedLibrary open_optional_library(const LibraryRequest& request);

}  // namespace cudaexec::gpu
