// Opens and checks a .pte program.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/export.h"
#include "format/mapped_file.h"
#include "format/pte_program.h"

namespace cudaexec {

/// The container header; all zero but program_size where the file has none (then no segment has
/// data).
struct PteHeader {
  bool present = false;
  uint32_t length = 0;
  uint64_t program_size = 0;  // bytes from 0 that the flatbuffer spans
  uint64_t segment_base_offset = 0;
  uint64_t segment_data_size = 0;
};

struct NamedBlob {
  std::string_view key;
  FileBlob blob;
  uint32_t segment_index = 0;
};

/// An open program: everything was verified, nothing is copied but the small descriptions.
/// Immutable.
class CUDAEXEC_API PteFile {
 public:
  /// @throws FileError if the file cannot be read, FormatError (path, offset) if it is damaged,
  /// VersionError if its schema version is newer than 0.
  static std::shared_ptr<const PteFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }
  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const noexcept { return file_; }
  [[nodiscard]] const PteHeader& header() const noexcept { return header_; }
  /// In file order. A name occurs once.
  [[nodiscard]] const std::vector<PteMethod>& methods() const noexcept { return methods_; }
  /// @returns nullptr if there is no such method.
  [[nodiscard]] const PteMethod* find_method(std::string_view name) const noexcept;
  [[nodiscard]] const std::vector<FileBlob>& segments() const noexcept { return segments_; }
  /// In file order. A key occurs once.
  [[nodiscard]] const std::vector<NamedBlob>& named_data() const noexcept { return named_data_; }
  /// @returns nullptr if there is no such key. Constant time.
  [[nodiscard]] const FileBlob* find_named(std::string_view key) const noexcept;
  [[nodiscard]] const PteSubsegments& constant_segment() const noexcept {
    return constant_segment_;
  }
  [[nodiscard]] const std::vector<PteSubsegments>& mutable_segments() const noexcept {
    return mutable_segments_;
  }

 private:
  friend class PteParser;
  PteFile() = default;

  std::shared_ptr<const MappedFile> file_;
  PteHeader header_;
  std::vector<FileBlob> segments_;
  std::vector<NamedBlob> named_data_;
  std::unordered_map<std::string_view, size_t> named_index_;
  PteSubsegments constant_segment_;
  std::vector<PteSubsegments> mutable_segments_;
  std::vector<PteMethod> methods_;
};

}  // namespace cudaexec
