// How the readers of this folder report damage, and what they share. Internal to cpp/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "format/mapped_file.h"

namespace cudaexec {

/// @throws FormatError "<path>, offset <offset>: <what>"
[[noreturn]] void throw_format_error(const std::string& path, uint64_t offset,
                                     const std::string& what);

/// Little-endian number at `offset`. @pre the bytes are there.
template <typename T>
T read_number(std::span<const std::byte> bytes, size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool is_valid_utf8(std::string_view text) noexcept;

/// Text for a message: quoted, control characters and invalid UTF-8 as \xNN, cut after 80 bytes.
std::string quote(std::string_view text);

/// Refuses two segments that overlap without being the same bytes.
/// @throws FormatError with the offset of the later one.
void check_segment_overlap(std::span<const FileBlob> segments, const std::string& path);

/// Bytes per element of a file's scalar type; 0 for types whose elements are not whole bytes and
/// for unknown ones.
size_t scalar_type_size(int32_t code) noexcept;
/// Whether the code names a type at all.
bool is_scalar_type(int32_t code) noexcept;

}  // namespace cudaexec
