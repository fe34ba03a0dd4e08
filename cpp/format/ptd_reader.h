// Opens and checks a .ptd data file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/export.h"
#include "format/mapped_file.h"

namespace cudaexec {

struct PtdHeader {
  uint32_t length = 0;
  uint64_t flatbuffer_offset = 0;
  uint64_t flatbuffer_size = 0;
  uint64_t segment_base_offset = 0;
  uint64_t segment_data_size = 0;
};

struct PtdLayout {
  int32_t scalar_type = 0;  // torch's code
  std::span<const int32_t> sizes;
  std::span<const uint8_t> dim_order;
};

struct PtdEntry {
  std::string_view key;
  FileBlob blob;
  uint32_t segment_index = 0;
  std::optional<PtdLayout> layout;  // blobs have none
};

/// An open data file: everything but the blobs' own content was verified. Immutable.
class CUDAEXEC_API PtdFile {
 public:
  /// @throws FileError if the file cannot be read, FormatError (path, offset) if it is damaged,
  /// VersionError if its schema version is newer than 0.
  static std::shared_ptr<const PtdFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }
  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const noexcept { return file_; }
  [[nodiscard]] const PtdHeader& header() const noexcept { return header_; }
  [[nodiscard]] const std::vector<FileBlob>& segments() const noexcept { return segments_; }
  /// In file order. A key occurs once.
  [[nodiscard]] const std::vector<PtdEntry>& entries() const noexcept { return entries_; }
  /// @returns nullptr if there is no such key. Constant time.
  [[nodiscard]] const PtdEntry* find(std::string_view key) const noexcept;

 private:
  friend class PtdParser;
  PtdFile() = default;

  std::shared_ptr<const MappedFile> file_;
  PtdHeader header_;
  std::vector<FileBlob> segments_;
  std::vector<PtdEntry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace cudaexec
