#include "ops/pack_cache.h"

#include <sys/mman.h>

#include <algorithm>

#include "memory/allocator.h"

namespace cudaexec::ops {
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> forms_made{0};

constexpr size_t kHugePage = size_t{2} << 20;

/// Weights are streamed, so address translation costs; asking for huge pages is only a hint.
void advise_huge_pages(char* data, size_t nbytes) noexcept {
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(data) + nbytes) / kHugePage * kHugePage;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

PackedForm::PackedForm(size_t nbytes) noexcept : nbytes_(nbytes) {
  live_bytes.fetch_add(static_cast<int64_t>(nbytes), std::memory_order_relaxed);
  forms_made.fetch_add(1, std::memory_order_relaxed);
}

PackedForm::~PackedForm() {
  live_bytes.fetch_sub(static_cast<int64_t>(nbytes_), std::memory_order_relaxed);
}

PackedBlock::PackedBlock(size_t nbytes)
    : PackedForm(nbytes),
      nbytes_(std::max<size_t>(nbytes, 1)),
      data_(static_cast<char*>(cpu_allocator().allocate(nbytes_, StreamRef()))) {
  advise_huge_pages(data_, nbytes_);
}

PackedBlock::~PackedBlock() { cpu_allocator().deallocate(data_, nbytes_, StreamRef()); }

PackCache::~PackCache() {
  for (Entry* entry = entries_.load(); entry != nullptr;) {
    const std::unique_ptr<Entry> owned(entry);
    entry = owned->next;
  }
}

PackCache& PackCache::of(Storage& constant) {
  StorageAttachment& attachment = constant.attachment(
      []() -> std::unique_ptr<StorageAttachment> { return std::make_unique<PackCache>(); });
  return static_cast<PackCache&>(attachment);
}

PackedForm* PackCache::find(std::span<const int64_t> key) const noexcept {
  for (Entry* entry = entries_.load(std::memory_order_acquire); entry != nullptr;
       entry = entry->next) {
    if (std::equal(key.begin(), key.end(), entry->key.begin(), entry->key.end())) {
      return entry->form.get();
    }
  }
  return nullptr;
}

PackedForm& PackCache::get(std::span<const int64_t> key,
                           const std::function<std::unique_ptr<PackedForm>()>& make) {
  if (PackedForm* found = find(key)) return *found;
  const std::lock_guard lock(making_);
  if (PackedForm* found = find(key)) return *found;
  auto entry = std::make_unique<Entry>(Entry{Dims(key), make(), entries_.load()});
  PackedForm& form = *entry->form;
  entries_.store(entry.release(), std::memory_order_release);
  return form;
}

int64_t packed_bytes() noexcept { return live_bytes.load(std::memory_order_relaxed); }
int64_t packed_count() noexcept { return forms_made.load(std::memory_order_relaxed); }

}  // namespace cudaexec::ops
