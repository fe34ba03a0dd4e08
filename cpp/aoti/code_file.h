// A file that holds a library's image while it is opened: anonymous memory, or a private file where
// the system refuses that.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace cudaexec {

class CodeFile {
 public:
  /// Writes `image`. @throws FileError naming what was tried; then nothing is left behind.
  CodeFile(std::span<const std::byte> image, const std::string& name);
  ~CodeFile();
  CodeFile(CodeFile&& other) noexcept;
  CodeFile& operator=(CodeFile&&) = delete;
  CodeFile(const CodeFile&) = delete;

  /// What to give dlopen(): a spelling never used before in this process, because the loader takes
  /// a name that it knows for the library that had it.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Once it is open: removes the private file and its directory. Anonymous memory stays, for
  /// debuggers, until the object ends.
  void opened() noexcept;

 private:
  bool make_memory(std::span<const std::byte> image, const std::string& name, std::string& why);
  bool make_file(const std::string& parent, std::span<const std::byte> image, std::string& why);
  void remove() noexcept;

  int fd_ = -1;
  std::string path_;
  std::string directory_;  // of the private file
};

}  // namespace cudaexec
