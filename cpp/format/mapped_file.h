// A whole file, mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/export.h"

namespace cudaexec {

/// Bytes inside a mapped file. The view lives as long as the file object it came from.
struct FileBlob {
  std::span<const std::byte> bytes;
  uint64_t file_offset = 0;
};

/// What names a file's content as long as nobody writes to it: two equal identities are one
/// mapping's worth of bytes.
struct FileIdentity {
  uint64_t device = 0, inode = 0, nbytes = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// Owns the mapping; the descriptor is closed at once. Immutable, so any thread may read it.
/// A file that another process truncates while it is mapped raises SIGBUS on access: replace files
/// by renaming, as the exporter does.
class CUDAEXEC_API MappedFile {
 public:
  /// @param path bytes as the system knows them (UTF-8, spaces and quotes need no escaping).
  /// @throws FileError if it is missing, unreadable or not a regular file; FormatError if it is
  /// empty.
  static std::shared_ptr<const MappedFile> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }

 private:
  explicit MappedFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::span<const std::byte> bytes_;
  FileIdentity identity_;
};

}  // namespace cudaexec
