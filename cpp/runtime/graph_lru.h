// A few entries, the one used last in front.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cudaexec {

/// Entries keep their address while they are in.
template <typename Entry>
class RecentList {
 public:
  explicit RecentList(size_t capacity) : capacity_(capacity) { entries_.reserve(capacity + 1); }

  /// The first entry for which `wanted(entry)` holds, moved to the front; null if there is none.
  /// Allocates nothing.
  template <typename Wanted>
  [[nodiscard]] Entry* find(const Wanted& wanted) {
    if (!entries_.empty() && wanted(*entries_.front())) [[likely]]
      return entries_.front().get();
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return wanted(*entry); });
    if (found == entries_.end()) return nullptr;
    std::rotate(entries_.begin(), found, found + 1);
    return entries_.front().get();
  }

  /// Puts an entry in front; gives the one that had to go for it, or null.
  std::unique_ptr<Entry> insert(std::unique_ptr<Entry> entry) {
    entries_.insert(entries_.begin(), std::move(entry));
    if (entries_.size() <= capacity_) return nullptr;
    std::unique_ptr<Entry> victim = std::move(entries_.back());
    entries_.pop_back();
    return victim;
  }

  /// Takes out an entry for which `wanted(entry)` holds; null if there is none.
  template <typename Wanted>
  std::unique_ptr<Entry> take(const Wanted& wanted) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return wanted(*entry); });
    if (found == entries_.end()) return nullptr;
    std::unique_ptr<Entry> entry = std::move(*found);
    entries_.erase(found);
    return entry;
  }

  [[nodiscard]] const std::vector<std::unique_ptr<Entry>>& all() const noexcept { return entries_; }
  void clear() noexcept { entries_.clear(); }

 private:
  size_t capacity_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace cudaexec
