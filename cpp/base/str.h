// Message building: str("input ", 3, " has size ", n).
#pragma once

#include <sstream>
#include <string>

namespace cudaexec {

template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// "[2, 3]" for any range of printable values.
template <typename Range>
std::string list_str(const Range& range) {
  std::ostringstream out;
  out << '[';
  const char* separator = "";
  for (const auto& item : range) {
    out << separator << item;
    separator = ", ";
  }
  out << ']';
  return std::move(out).str();
}

}  // namespace cudaexec
