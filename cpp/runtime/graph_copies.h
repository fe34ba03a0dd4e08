// The copies into and out of a captured call: kernel nodes whose addresses change from launch to
// launch. A node is only told what changed since the launch before.
#pragma once

#include <cstddef>
#include <vector>

#include "device/cuda/batch_copy.h"
#include "device/cuda/graph_capture.h"
#include "device/cuda/strided_copy.h"

namespace cudaexec {

class GraphCopies final : public CopySink {
 public:
  /// One copy: of a batch, or a kernel of its own.
  struct Slot {
    size_t node = 0;
    size_t index = 0;
  };

  explicit GraphCopies(CudaDevice& device) noexcept : device_(device) {}
  GraphCopies(const GraphCopies&) = delete;
  GraphCopies& operator=(const GraphCopies&) = delete;

  /// Before capture(). `nbytes` > 0; memory that the GPU can reach.
  Slot add(void* dst, const void* src, size_t nbytes);
  /// At most kBatchInline bytes, which set_bytes() gives.
  Slot add_bytes(void* dst, size_t nbytes);
  // A strided copy adds its parts here; they are slots first() to last() - 1.
  void kernel(cuda::CUfunction function, unsigned blocks, unsigned block_x, unsigned block_y,
              const void* args, size_t nbytes) override;
  void run(void* dst, const void* src, size_t nbytes) override;
  /// The slots that were added since the last call of this, with their source addresses.
  struct Part {
    Slot slot;
    const void* src;
  };
  [[nodiscard]] std::vector<Part> take_parts();

  /// Puts all of them on the captured stream. The device is current, and its kernels loaded.
  void capture(StreamCapture& stream);

  void set_dst(Slot slot, void* dst) noexcept;
  void set_src(Slot slot, const void* src) noexcept;
  void set_bytes(Slot slot, const void* bytes) noexcept;
  [[nodiscard]] size_t node_count() const noexcept { return nodes_.size(); }
  /// Tells `exec` what changed. Where that fails, the next call tells it again. The device is
  /// current.
  void update(GraphExec& exec);

 private:
  struct Node {
    cuda::CUgraphNode node = nullptr;
    bool changed = false;
    BatchCopy batch;  // if `function` is null
    cuda::CUfunction function = nullptr;
    unsigned blocks = 0, block_x = 0, block_y = 0;
    std::vector<std::byte> args;
  };
  template <typename HasRoom>
  size_t batch_for(const HasRoom& has_room);

  CudaDevice& device_;
  cuda::CUfunction batch_kernel_ = nullptr;  // from capture() on; the device's table has a lock
  std::vector<Node> nodes_;
  std::vector<Part> parts_;
};

}  // namespace cudaexec
