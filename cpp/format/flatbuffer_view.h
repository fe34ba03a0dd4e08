// Checked reading of a verified flatbuffer: spans and strings with their offsets, within a budget
// of work. Internal to the readers of cpp/format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/str.h"
#include "flatbuffers/flatbuffers.h"
#include "format/format_fault.h"

namespace cudaexec {

inline constexpr uint32_t kMaxTableDepth = 64;
inline constexpr uint32_t kMaxTables = 4'000'000;

/// A flatbuffer lets many fields refer to one vector. Files that writers make do so rarely; a
/// crafted one could make a reader look at gigabytes. So each element looked at costs one unit of a
/// budget that is a multiple of the buffer's size.
class FlatbufferView {
 public:
  FlatbufferView(std::span<const std::byte> buffer, const std::string& path)
      : buffer_(buffer), path_(path), budget_(16 * uint64_t{buffer.size()} + (1 << 20)) {}

  [[nodiscard]] uint64_t offset_of(const void* position) const noexcept {
    return static_cast<uint64_t>(static_cast<const std::byte*>(position) - buffer_.data());
  }

  [[noreturn]] void fail(const void* position, const std::string& what) const {
    throw_format_error(path_, position == nullptr ? 0 : offset_of(position), what);
  }

  void spend(const void* position, uint64_t units) {
    if (units > budget_)
      fail(position, "tables share so many elements that the file must be crafted");
    budget_ -= units;
  }

  /// The elements of a vector of numbers; an absent vector is empty.
  template <typename T>
  std::span<const T> numbers(const flatbuffers::Vector<T>* vector) {
    if (vector == nullptr) return {};
    if (reinterpret_cast<uintptr_t>(vector->data()) % alignof(T) != 0)
      fail(vector, "a vector is not aligned; the file is damaged");
    spend(vector, vector->size());
    return {reinterpret_cast<const T*>(vector->data()), vector->size()};
  }

  /// A string; an absent one is empty. It must be UTF-8.
  std::string_view text(const flatbuffers::String* string) {
    if (string == nullptr) return {};
    const std::string_view view(string->c_str(), string->size());
    spend(string, view.size());
    if (!is_valid_utf8(view)) fail(string, str("text ", quote(view), " is not valid UTF-8"));
    return view;
  }

 private:
  std::span<const std::byte> buffer_;
  const std::string& path_;
  uint64_t budget_;
};

/// The limits for flatbuffers' own verifier.
inline flatbuffers::Verifier::Options verifier_options() {
  flatbuffers::Verifier::Options options;
  options.max_depth = kMaxTableDepth;
  options.max_tables = kMaxTables;
  return options;
}

}  // namespace cudaexec
