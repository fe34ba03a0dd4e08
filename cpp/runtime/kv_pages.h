// Physical pages that several sessions may share, and the addresses of one group of one session.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/export.h"
#include "memory/page_backend.h"

namespace cudaexec {

/// One piece of physical memory; goes with the last range that shows it.
class CUDAEXEC_API KvPage {
 public:
  /// @throws OutOfMemory.
  KvPage(std::shared_ptr<PageBackend> backend, size_t nbytes)
      : backend_(std::move(backend)), nbytes_(nbytes), handle_(backend_->create(nbytes)) {}
  ~KvPage() { backend_->destroy(handle_, nbytes_); }
  KvPage(const KvPage&) = delete;
  KvPage& operator=(const KvPage&) = delete;
  [[nodiscard]] uint64_t handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<PageBackend> backend_;
  size_t nbytes_;
  uint64_t handle_;
};

/// Reserved addresses for `count` pages. One caller at a time; on a GPU the caller has waited for
/// the work that uses what is unmapped here, the destructor included.
class CUDAEXEC_API KvPages {
 public:
  /// @throws OutOfMemory.
  KvPages(std::shared_ptr<PageBackend> backend, size_t page_nbytes, size_t count);
  ~KvPages();
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::byte* address(size_t index) const noexcept {
    return base_ + index * page_nbytes_;
  }
  [[nodiscard]] size_t count() const noexcept { return pages_.size(); }
  [[nodiscard]] size_t page_nbytes() const noexcept { return page_nbytes_; }
  /// Pages with memory.
  [[nodiscard]] size_t mapped() const noexcept { return mapped_; }
  /// Bytes of address space.
  [[nodiscard]] size_t reserved_nbytes() const noexcept { return (count() + 1) * page_nbytes_; }
  [[nodiscard]] bool is_mapped(size_t index) const noexcept { return pages_[index].mapped; }
  /// Whether another range shows the same memory. What that range did before it let go is done.
  [[nodiscard]] bool is_shared(size_t index) const noexcept;

  /// Gives a page memory, if it has none. @throws OutOfMemory, FileError; then nothing changed.
  void ensure(size_t index);
  /// Maps again what make_own() could not put back. @throws as ensure().
  void repair();
  /// Copies a page's bytes and returns when they are there and nothing uses either; with a null
  /// `dst` it only waits.
  using Copy = std::function<void(std::byte* dst, const std::byte* src)>;
  /// Gives a shared page memory of its own, with the bytes of the old one if `keep`.
  /// @throws as ensure(), or what `copy` throws; then the page is as it was.
  void make_own(size_t index, bool keep, const Copy& copy);
  /// Shows the memory of another range's page where this one has none. @throws FileError.
  void share(size_t index, const KvPages& other);

 private:
  struct Slot {
    std::shared_ptr<KvPage> memory;
    bool mapped = false;  // false with memory: it has to be mapped again
  };
  void map(Slot& slot, size_t index);

  std::shared_ptr<PageBackend> backend_;
  size_t page_nbytes_;
  std::vector<Slot> pages_;
  std::byte* base_ = nullptr;  // one page more than `count`, to copy through
  size_t mapped_ = 0;
  size_t holes_ = 0;     // pages with memory that are not mapped
  bool staged_ = false;  // the page to copy through is still mapped
};

}  // namespace cudaexec
