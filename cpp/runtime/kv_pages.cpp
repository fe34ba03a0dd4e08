#include "runtime/kv_pages.h"

#include <atomic>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"

namespace cudaexec {

KvPages::KvPages(std::shared_ptr<PageBackend> backend, size_t page_nbytes, size_t count)
    : backend_(std::move(backend)), page_nbytes_(page_nbytes), pages_(count) {
  base_ = backend_->reserve(reserved_nbytes());
}

KvPages::~KvPages() {
  const auto unmap = [&](size_t index) {
    try {
      backend_->unmap(address(index), page_nbytes_);
    } catch (const Error& error) {
      report_cleanup_failure("unmapping a page of a KV cache", error.what());
    }
  };
  if (!backend_->device().is_cpu()) {    // there unreserve() takes the mappings along
    if (!backend_->is_usable()) return;  // a forked child
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (pages_[i].mapped) unmap(i);
    }
    if (staged_) unmap(count());
  }
  backend_->unreserve(base_, reserved_nbytes());
}

bool KvPages::is_shared(size_t index) const noexcept {
  const bool shared = pages_[index].memory.use_count() > 1;
  if (!shared) std::atomic_thread_fence(std::memory_order_acquire);
  return shared;
}

void KvPages::map(Slot& slot, size_t index) {
  backend_->map(address(index), slot.memory->handle(), page_nbytes_);
  slot.mapped = true;
  ++mapped_;
}

void KvPages::ensure(size_t index) {
  Slot& slot = pages_[index];
  if (slot.mapped) return;
  if (slot.memory != nullptr) {
    map(slot, index);
    --holes_;
    return;
  }
  Slot made{std::make_shared<KvPage>(backend_, page_nbytes_), false};
  map(made, index);
  slot = std::move(made);
}

void KvPages::make_own(size_t index, bool keep, const Copy& copy) {
  Slot& slot = pages_[index];
  auto fresh = std::make_shared<KvPage>(backend_, page_nbytes_);
  if (keep) {
    std::byte* staging = address(count());
    if (staged_) backend_->unmap(staging, page_nbytes_);
    staged_ = false;
    backend_->map(staging, fresh->handle(), page_nbytes_);
    staged_ = true;
    copy(staging, address(index));
    backend_->unmap(staging, page_nbytes_);
    staged_ = false;
  } else {
    copy(nullptr, nullptr);
  }
  if (slot.mapped) {
    backend_->unmap(address(index), page_nbytes_);
    slot.mapped = false;
    --mapped_;
    ++holes_;
  }
  const std::shared_ptr<KvPage> old = std::exchange(slot.memory, std::move(fresh));
  try {
    map(slot, index);
    --holes_;
  } catch (...) {
    slot.memory = old;
    try {
      map(slot, index);
      --holes_;
    } catch (const Error&) {  // repair() tries again
    }
    throw;
  }
}

void KvPages::repair() {
  for (size_t i = 0; holes_ != 0 && i < pages_.size(); ++i) {
    if (pages_[i].memory != nullptr && !pages_[i].mapped) ensure(i);
  }
}

void KvPages::share(size_t index, const KvPages& other) {
  Slot shared{other.pages_[index].memory, false};
  map(shared, index);
  pages_[index] = std::move(shared);
}

}  // namespace cudaexec
