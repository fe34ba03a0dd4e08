// A few values in a row: up to kInline of them without a heap allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace cudaexec {

template <typename T, size_t kInline>
class InlineList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  InlineList() noexcept = default;
  InlineList(InlineList&& other) noexcept { *this = std::move(other); }
  InlineList& operator=(InlineList&& other) noexcept {
    std::copy_n(other.inline_, kInline, inline_);
    heap_ = std::move(other.heap_);
    room_ = std::exchange(other.room_, kInline);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~InlineList() = default;

  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const T* begin() const noexcept { return heap_ ? heap_.get() : inline_; }
  [[nodiscard]] T* begin() noexcept { return heap_ ? heap_.get() : inline_; }
  [[nodiscard]] const T* end() const noexcept { return begin() + size_; }
  [[nodiscard]] T* end() noexcept { return begin() + size_; }
  [[nodiscard]] const T& operator[](size_t i) const noexcept { return begin()[i]; }
  [[nodiscard]] T& operator[](size_t i) noexcept { return begin()[i]; }
  [[nodiscard]] const T& back() const noexcept { return end()[-1]; }

  void push_back(const T& value) {
    if (size_ == room_) {
      auto grown = std::make_unique<T[]>(room_ * 2);
      std::copy_n(begin(), size_, grown.get());
      heap_ = std::move(grown);
      room_ *= 2;
    }
    begin()[size_++] = value;
  }
  void pop_back() noexcept { --size_; }
  void erase(T* place) noexcept {
    std::copy(place + 1, end(), place);
    --size_;
  }
  /// Drops what is behind the first `count`.
  void shrink(size_t count) noexcept { size_ = count; }

 private:
  size_t size_ = 0;
  size_t room_ = kInline;
  T inline_[kInline] = {};
  std::unique_ptr<T[]> heap_;  // null while they fit
};

}  // namespace cudaexec
