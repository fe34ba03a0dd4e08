// The memory of CUDA graphs: taken while work is captured, kept as long as a graph uses it. Graphs
// that never run at the same time share it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "memory/allocator.h"
#include "memory/range_list.h"

namespace cudaexec {

/// One piece of device memory, given back with its last graph.
class GraphSlab {
 public:
  /// @throws OutOfMemory, CaptureError.
  GraphSlab(CudaDevice& device, Allocator& upstream, size_t nbytes);
  ~GraphSlab();
  GraphSlab(const GraphSlab&) = delete;
  GraphSlab& operator=(const GraphSlab&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] size_t nbytes() const noexcept { return nbytes_; }
  /// Where it was allocated and is freed.
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

 private:
  Allocator& upstream_;
  size_t nbytes_;
  StreamRef stream_;
  void* data_;
};

/// The slabs of graphs that run one after another, such as those of one container. Used by one
/// thread at a time.
class CUDAEXEC_API GraphMemory {
 public:
  /// `upstream` allocates on `device`, never on a stream that is being captured, and outlives all.
  GraphMemory(CudaDevice& device, Allocator& upstream) noexcept
      : device_(device), upstream_(upstream) {}

  [[nodiscard]] CudaDevice& device() const noexcept { return device_; }
  /// Bytes of the slabs that graphs hold now.
  [[nodiscard]] size_t nbytes() const noexcept;

 private:
  friend class GraphArena;
  std::vector<std::shared_ptr<GraphSlab>> alive();

  CudaDevice& device_;
  Allocator& upstream_;
  std::vector<std::weak_ptr<GraphSlab>> slabs_;
};

/// Memory of a caller that takes the place of one allocation, told by its number in the capture.
struct GraphRedirect {
  size_t number = 0;
  size_t nbytes = 0;
  void* data = nullptr;
};

/// What one graph uses: first the slabs of other graphs, then new ones. Blocks given back serve
/// later requests of the same capture, whose work keeps its order. Used by one thread at a time;
/// destroy it after the graph.
class CUDAEXEC_API GraphArena final : public Allocator {
 public:
  explicit GraphArena(GraphMemory& memory, std::vector<GraphRedirect> redirects = {});
  ~GraphArena() override;
  GraphArena(const GraphArena&) = delete;
  GraphArena& operator=(const GraphArena&) = delete;

  /// In a capture too: the memory is there before the graph first runs. The stream means nothing.
  [[nodiscard]] void* allocate(size_t nbytes, StreamRef stream) override;
  void deallocate(void* data, size_t nbytes, StreamRef stream) noexcept override;

  /// The number of the allocation that gave `data`, counted from 0; nothing if none did.
  [[nodiscard]] std::optional<size_t> number_of(const void* data) const;
  /// Forgets slabs of other graphs that this one does not use; nothing more will be allocated.
  void seal() noexcept;
  /// Work on `stream` from now on finds the memory there.
  void make_ready(StreamRef stream) const;
  /// The memory goes back only after what is on `stream` now.
  void free_after(StreamRef stream) const;
  /// Bytes of the slabs it uses.
  [[nodiscard]] size_t nbytes() const noexcept;

 private:
  struct Used {
    std::shared_ptr<GraphSlab> slab;
    RangeList ranges;
    bool touched = false;
  };
  [[nodiscard]] void* place(size_t nbytes);

  GraphMemory& memory_;
  std::vector<GraphRedirect> redirects_;
  std::vector<Used> slabs_;
  size_t count_ = 0;                       // allocations so far
  std::map<const void*, size_t> numbers_;  // of the last one at an address
};

}  // namespace cudaexec
