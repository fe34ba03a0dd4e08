#include "base/words.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/str.h"

namespace cudaexec {
namespace {

/// Edits (insert, delete, replace) that turn one word into the other.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

}  // namespace

std::string count_str(size_t count, const char* noun) {
  return str(count, " ", noun, count == 1 ? "" : "s");
}

std::string with_article(const std::string& name) {
  const bool vowel = !name.empty() && std::string("aeiouAEIOU").find(name[0]) != std::string::npos;
  return (vowel ? "an " : "a ") + name;
}

std::string closest_hint(const std::string& name, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::min(name.size(), (name.size() + 2) / 3 + 1);  // must be below
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : str("; did you mean '", *best, "'?");
}

}  // namespace cudaexec
