// A file operation that was refused for a path.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace cudaexec {

class CUDAEXEC_API PathError : public FileError {
 public:
  /// @param os_error  the `errno`. @param path  as given to the operating system.
  PathError(const std::string& message, int os_error, std::string path)
      : FileError(message, os_error), path_(std::move(path)) {}
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace cudaexec
