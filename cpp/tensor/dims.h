// Sizes or strides of a tensor: a vector that keeps up to six entries without a heap allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace cudaexec {

class Dims {
 public:
  static constexpr size_t kInline = 6;

  Dims() noexcept = default;
  explicit Dims(size_t count, int64_t value = 0) { assign(count, value); }
  Dims(std::initializer_list<int64_t> values) { assign(values.begin(), values.size()); }
  Dims(const int64_t* values, size_t count) { assign(values, count); }
  explicit Dims(std::span<const int64_t> values) { assign(values.data(), values.size()); }
  Dims(const Dims& other) { assign(other.data(), other.size_); }
  Dims(Dims&& other) noexcept { steal(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.data(), other.size_);
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) {
      delete[] heap_;
      steal(other);
    }
    return *this;
  }
  ~Dims() { delete[] heap_; }

  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const int64_t* data() const noexcept { return heap_ != nullptr ? heap_ : inline_; }
  [[nodiscard]] int64_t* data() noexcept { return heap_ != nullptr ? heap_ : inline_; }
  [[nodiscard]] const int64_t* begin() const noexcept { return data(); }
  [[nodiscard]] const int64_t* end() const noexcept { return data() + size_; }
  [[nodiscard]] int64_t* begin() noexcept { return data(); }
  [[nodiscard]] int64_t* end() noexcept { return data() + size_; }
  [[nodiscard]] int64_t operator[](size_t i) const noexcept { return data()[i]; }
  [[nodiscard]] int64_t& operator[](size_t i) noexcept { return data()[i]; }
  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

  void assign(size_t count, int64_t value) {
    reserve_discard(count);
    std::fill_n(data(), count, value);
  }
  void assign(const int64_t* values, size_t count) {
    reserve_discard(count);
    std::copy_n(values, count, data());
  }

 private:
  void reserve_discard(size_t count) {
    if (count > kInline && count > capacity_) {
      int64_t* grown = new int64_t[count];
      delete[] heap_;
      heap_ = grown;
      capacity_ = count;
    }
    size_ = count;
  }
  void steal(Dims& other) noexcept {
    heap_ = std::exchange(other.heap_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
    size_ = std::exchange(other.size_, 0);
    std::copy_n(other.inline_, kInline, inline_);
  }

  size_t size_ = 0;
  size_t capacity_ = 0;  // of heap_
  int64_t* heap_ = nullptr;
  int64_t inline_[kInline] = {};
};

}  // namespace cudaexec
