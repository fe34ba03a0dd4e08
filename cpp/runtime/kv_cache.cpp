#include "runtime/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

std::shared_ptr<PageBackend> make_backend(CudaDevice* gpu) {
  return gpu != nullptr ? make_cuda_pages(*gpu) : make_cpu_pages();
}

/// Calls visit(index) for the pages of slots that tokens [first, first + count) go to.
template <typename Visit>
void visit_pages(const KvGroup& group, int64_t first, int64_t count, const Visit& visit) {
  const int64_t pages = group.pages();
  const int64_t begin = first >> group.block_shift;
  const int64_t end = (first + count - 1) >> group.block_shift;
  for (int64_t page = begin; page <= end && page < begin + pages; ++page) {
    visit(static_cast<size_t>(page % pages));
  }
}

}  // namespace

KvProgram::KvProgram(KvCacheSpec spec, CudaDevice* gpu)
    : spec_(std::move(spec)),
      gpu_(gpu),
      backend_(make_backend(gpu)),
      layout_(plan_kv(spec_, static_cast<int64_t>(backend_->granularity()))) {}

std::shared_ptr<PageBackend> KvProgram::backend() {
  const std::lock_guard lock(mutex_);
  if (!backend_->is_usable()) backend_ = make_backend(gpu_);
  return backend_;
}

KvCache::KvCache(std::shared_ptr<KvProgram> program) : program_(std::move(program)) {
  if (program_->gpu() != nullptr) device_ = std::make_unique<KvDevice>(*program_->gpu());
  build();
}

KvCache::~KvCache() = default;

void KvCache::build() {
  const KvLayout& layout = program_->layout();
  std::shared_ptr<PageBackend> backend = program_->backend();
  std::vector<std::unique_ptr<KvPages>> pages;
  for (const KvGroup& group : layout.groups) {
    pages.push_back(std::make_unique<KvPages>(backend, static_cast<size_t>(group.page_nbytes),
                                              static_cast<size_t>(group.pages())));
  }
  layers_ = layout.layers;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].base = pages[layout.group_of_layer[i]]->base();
  }
  pages_ = std::move(pages);
  backend_ = std::move(backend);
  step_.layers = &layers_;
  step_.dtype = program_->spec().dtype;
  step_.device = backend_->device();
  if (device_ != nullptr) {
    step_.word = device_->word();
    step_.fault = device_->fault();
  }
}

KvBytes KvCache::usage() const noexcept {
  const KvLayout& layout = program_->layout();
  KvBytes usage;
  for (size_t g = 0; g < pages_.size(); ++g) {
    const KvGroup& group = layout.groups[g];
    usage.reserved += pages_[g]->reserved_nbytes();
    usage.mapped += pages_[g]->mapped() * pages_[g]->page_nbytes();
    usage.used += static_cast<size_t>(std::min(position(), group.slots) * group.token_nbytes);
  }
  return usage;
}

void KvCache::require_usable(const std::string& what) const {
  if (backend_->is_usable()) return;
  throw NotSupported(str(what,
                         ": the KV cache was filled before this process was forked and "
                         "belongs to the parent; call reset(), or make a new session"));
}

const KvStep& KvCache::prepare(int64_t width, StreamRef stream, const std::string& what) {
  require_usable(what);
  check_fault(what);
  const int64_t first = position();
  if (width > capacity() - first) {
    throw ContextFull(str(what, ": the KV cache is full: it holds ", first,
                          " tokens, this call adds ", width, ", and ", capacity(),
                          " fit; rewind() or reset() the session, or export with a larger cache"));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (width > kMost - first) {
    throw ContextFull(str(what, ": the KV cache has seen ", first, " tokens; no more than ", kMost,
                          " can be counted; reset() the session"));
  }
  for (size_t g = 0; g < pages_.size(); ++g) {
    make_room(program_->layout().groups[g], *pages_[g], width, stream);
  }
  if (device_ != nullptr) device_->set_position(first, stream);
  written_ = std::max(written_, first + width);
  step_.position = first;
  step_.width = width;
  return step_;
}

void KvCache::make_room(const KvGroup& group, KvPages& pages, int64_t width, StreamRef stream) {
  const auto copy = [&](std::byte* dst, const std::byte* src) {
    if (device_ != nullptr) return device_->copy(dst, src, pages.page_nbytes(), stream);
    if (dst != nullptr) std::memcpy(dst, src, pages.page_nbytes());
  };
  pages.repair();
  visit_pages(group, position(), width, [&](size_t index) {
    if (pages.is_shared(index)) {
      const bool holds_tokens = (static_cast<int64_t>(index) << group.block_shift) < position();
      pages.make_own(index, holds_tokens, copy);
    }
    pages.ensure(index);
  });
}

void KvCache::commit() noexcept { position_ = step_.position + step_.width; }

void KvCache::map_ahead() noexcept {
  if (device_ == nullptr) return;
  const int64_t end = step_.position + step_.width;
  for (size_t g = 0; g < pages_.size(); ++g) {
    const KvGroup& group = program_->layout().groups[g];
    const int64_t next = end % group.slots;
    if (next % group.block() != 0 || end >= capacity()) continue;
    try {
      pages_[g]->ensure(static_cast<size_t>(next >> group.block_shift));
    } catch (const std::exception&) {
    }
  }
}

void KvCache::check_fault(const std::string& what) {
  if (device_ == nullptr) return;
  const auto fault = device_->take_fault();
  if (!fault) return;
  position_ = fault->expected;
  throw InputError(str(what, ": a step came with positions from ", fault->found,
                       " on; the session expected ", fault->expected,
                       ", the tokens that it holds. That step and later ones changed nothing; "
                       "pass position + arange(width), or rewind() the session first"));
}

void KvCache::rewind(int64_t target) {
  const int64_t now = position();
  if (target < 0 || target > now) {
    throw InputError(str("rewind(", target, "): the session holds ", now,
                         " tokens; expected a position from 0 to ", now));
  }
  for (const KvLayerView& layer : layers_) {
    if (!layer.is_ring()) continue;
    const int64_t oldest = std::max<int64_t>(0, written_ - layer.slots);
    const int64_t needed = std::max<int64_t>(0, target - layer.window + 1);
    if (needed >= target || needed >= oldest) continue;
    throw InputError(str("rewind(", target, "): layer ", layer.id, " has a window of ",
                         layer.window, " tokens and keeps ", layer.slots, ": it needs tokens from ",
                         needed, " on and has those from ", oldest, " to ", now - 1,
                         "; rewind to at least ", oldest + layer.window - 1, ", or to 0"));
  }
  position_ = target;
  if (target == 0) written_ = 0;
}

void KvCache::reset() {
  if (!backend_->is_usable()) build();
  if (device_ != nullptr) (void)device_->take_fault();
  position_ = 0;
  written_ = 0;
}

std::unique_ptr<KvCache> KvCache::fork(const std::string& what) {
  require_usable(what);
  check_fault(what);
  auto child = std::make_unique<KvCache>(program_);
  const int64_t tokens = position();
  for (size_t g = 0; tokens > 0 && g < pages_.size(); ++g) {
    const KvGroup& group = program_->layout().groups[g];
    const int64_t last = std::min(written_, group.slots);  // of a ring, other slots hold tokens too
    visit_pages(group, 0, group.ring ? last : tokens,
                [&](size_t index) { child->pages_[g]->share(index, *pages_[g]); });
  }
  child->position_ = tokens;
  child->written_ = written_;
  return child;
}

}  // namespace cudaexec
