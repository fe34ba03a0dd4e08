#include "memory/cuda_graph_memory.h"

#include <algorithm>
#include <utility>

#include "base/cleanup_report.h"
#include "device/cuda/graph_capture.h"

namespace cudaexec {
namespace {

constexpr size_t kBlock = 512;                    // bytes; alignment of generated code and more
constexpr size_t kSmallSlab = size_t{256} << 10;  // shared by small blocks
constexpr size_t kLargeUnit = size_t{64} << 10;

size_t rounded(size_t nbytes, size_t unit) noexcept { return (nbytes + unit - 1) / unit * unit; }

}  // namespace

GraphSlab::GraphSlab(CudaDevice& device, Allocator& upstream, size_t nbytes)
    : upstream_(upstream),
      nbytes_(nbytes),
      stream_(device.thread_stream()),
      data_(upstream.allocate(nbytes, stream_)) {}

GraphSlab::~GraphSlab() { upstream_.deallocate(data_, nbytes_, stream_); }

std::vector<std::shared_ptr<GraphSlab>> GraphMemory::alive() {
  std::vector<std::shared_ptr<GraphSlab>> result;
  std::erase_if(slabs_, [&](const std::weak_ptr<GraphSlab>& slab) {
    auto locked = slab.lock();
    if (locked == nullptr) return true;
    result.push_back(std::move(locked));
    return false;
  });
  return result;
}

size_t GraphMemory::nbytes() const noexcept {
  size_t total = 0;
  for (const std::weak_ptr<GraphSlab>& slab : slabs_) {
    if (const auto locked = slab.lock()) total += locked->nbytes();
  }
  return total;
}

GraphArena::GraphArena(GraphMemory& memory, std::vector<GraphRedirect> redirects)
    : memory_(memory), redirects_(std::move(redirects)) {
  for (auto& slab : memory.alive()) {
    const size_t nbytes = slab->nbytes();
    slabs_.push_back({std::move(slab), RangeList(nbytes)});
  }
}

GraphArena::~GraphArena() = default;

void* GraphArena::allocate(size_t nbytes, StreamRef /*stream*/) {
  const size_t number = count_++;
  for (const GraphRedirect& redirect : redirects_) {
    if (redirect.number == number && redirect.nbytes == nbytes) return redirect.data;
  }
  void* const data = place(nbytes);
  numbers_[data] = number;
  return data;
}

std::optional<size_t> GraphArena::number_of(const void* data) const {
  const auto found = numbers_.find(data);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

void* GraphArena::place(size_t nbytes) {
  const size_t wanted = rounded(nbytes, kBlock);
  for (Used& used : slabs_) {
    if (const auto offset = used.ranges.take(wanted)) {
      used.touched = true;
      return used.slab->data() + *offset;
    }
  }
  const size_t size = wanted < kSmallSlab ? kSmallSlab : rounded(wanted, kLargeUnit);
  slabs_.reserve(slabs_.size() + 1);
  memory_.slabs_.reserve(memory_.slabs_.size() + 1);
  const RelaxedCaptureMode relaxed;
  auto slab = std::make_shared<GraphSlab>(memory_.device_, memory_.upstream_, size);
  std::byte* const data = slab->data();
  RangeList ranges(size);
  (void)ranges.take(wanted);  // at offset 0
  memory_.slabs_.push_back(slab);
  slabs_.push_back({std::move(slab), std::move(ranges), true});
  return data;
}

void GraphArena::deallocate(void* data, size_t nbytes, StreamRef /*stream*/) noexcept {
  auto* const place = static_cast<std::byte*>(data);
  for (Used& used : slabs_) {
    if (place < used.slab->data() || place >= used.slab->data() + used.slab->nbytes()) continue;
    try {
      used.ranges.give_back(static_cast<size_t>(place - used.slab->data()),
                            rounded(nbytes, kBlock));
    } catch (const std::exception& error) {
      report_cleanup_failure("giving memory of a graph back", error.what());  // it stays taken
    }
    return;
  }
}

void GraphArena::seal() noexcept {
  std::erase_if(slabs_, [](const Used& used) { return !used.touched; });
  numbers_.clear();
}

void GraphArena::make_ready(StreamRef stream) const {
  for (const Used& used : slabs_) memory_.device_.order(stream, used.slab->stream());
}

void GraphArena::free_after(StreamRef stream) const {
  for (const Used& used : slabs_) memory_.device_.order(used.slab->stream(), stream);
}

size_t GraphArena::nbytes() const noexcept {
  size_t total = 0;
  for (const Used& used : slabs_) total += used.slab->nbytes();
  return total;
}

}  // namespace cudaexec
