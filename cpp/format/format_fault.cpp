#include "format/format_fault.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

constexpr size_t kQuoteLimit = 80;

/// Length of the UTF-8 sequence at `text[i]`, or 0 if it is not one.
size_t utf8_sequence(std::string_view text, size_t i) noexcept {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > text.size() - i) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  // No overlong forms, surrogates, or code points above U+10FFFF.
  const unsigned char second = byte(i + 1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

void throw_format_error(const std::string& path, uint64_t offset, const std::string& what) {
  throw FormatError(str(path, ", offset ", offset, ": ", what));
}

bool is_valid_utf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_sequence(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::string quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  size_t i = 0;
  while (i < text.size() && i < kQuoteLimit) {
    const size_t length = utf8_sequence(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  if (i < text.size()) out += str("... (", text.size(), " bytes)");
  return out + "'";
}

void check_segment_overlap(std::span<const FileBlob> segments, const std::string& path) {
  std::vector<size_t> order(segments.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return segments[i].bytes.empty(); });
  const auto start = [&](size_t i) { return segments[i].file_offset; };
  const auto size = [&](size_t i) { return segments[i].bytes.size(); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return start(a) != start(b) ? start(a) < start(b) : size(a) < size(b);
  });
  for (size_t k = 1; k < order.size(); ++k) {
    const size_t a = order[k - 1];
    const size_t b = order[k];
    if (start(a) == start(b) && size(a) == size(b)) continue;
    if (start(b) - start(a) >= size(a)) continue;
    throw_format_error(path, start(b),
                       str("segments ", a, " (", start(a), "+", size(a), ") and ", b, " (",
                           start(b), "+", size(b), ") overlap; the file is damaged"));
  }
}

namespace {

struct ScalarInfo {
  bool known = false;
  uint8_t nbytes = 0;
};

constexpr std::array<ScalarInfo, 30> scalar_table() {
  std::array<ScalarInfo, 30> table{};
  const auto set = [&](size_t code, uint8_t nbytes) { table[code] = {true, nbytes}; };
  for (const size_t code : {0u, 1u, 11u, 12u, 13u, 23u, 24u, 25u, 26u}) set(code, 1);
  for (const size_t code : {2u, 5u, 15u, 22u, 27u}) set(code, 2);
  for (const size_t code : {3u, 6u, 14u, 28u}) set(code, 4);
  for (const size_t code : {4u, 7u, 29u}) set(code, 8);
  for (const size_t code : {16u, 17u}) set(code, 0);
  return table;
}
constexpr auto kScalarTable = scalar_table();

}  // namespace

size_t scalar_type_size(int32_t code) noexcept {
  const auto index = static_cast<size_t>(code);
  return code >= 0 && index < kScalarTable.size() ? kScalarTable[index].nbytes : 0;
}

bool is_scalar_type(int32_t code) noexcept {
  const auto index = static_cast<size_t>(code);
  return code >= 0 && index < kScalarTable.size() && kScalarTable[index].known;
}

}  // namespace cudaexec
