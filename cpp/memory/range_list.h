// Places blocks in one range of addresses: first fit, neighbours joined. Pure arithmetic.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace cudaexec {

class RangeList {
 public:
  explicit RangeList(size_t nbytes) : nbytes_(nbytes) { reset(); }

  /// The offset of `nbytes` (> 0) free bytes, taken; nothing if no hole is large enough.
  std::optional<size_t> take(size_t nbytes) {
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < nbytes) continue;
      const size_t offset = hole->first;
      const size_t rest = hole->second - nbytes;
      // Before anything changes: it may run out of host memory.
      if (rest > 0) holes_.emplace(offset + nbytes, rest);
      holes_.erase(offset);
      return offset;
    }
    return std::nullopt;
  }

  /// Gives back what take() returned, with the same size.
  void give_back(size_t offset, size_t nbytes) {
    auto next = holes_.lower_bound(offset);
    if (next != holes_.end() && next->first == offset + nbytes) {
      nbytes += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      auto before = next;
      --before;
      if (before->first + before->second == offset) {
        before->second += nbytes;
        return;
      }
    }
    holes_.emplace(offset, nbytes);
  }

  /// Everything is free again.
  void reset() {
    holes_.clear();
    holes_.emplace(0, nbytes_);
  }

  [[nodiscard]] size_t nbytes() const noexcept { return nbytes_; }
  /// Whether nothing is taken.
  [[nodiscard]] bool is_free() const noexcept {
    return holes_.size() == 1 && holes_.begin()->second == nbytes_;
  }

 private:
  size_t nbytes_;
  std::map<size_t, size_t> holes_;  // offset -> size
};

}  // namespace cudaexec
