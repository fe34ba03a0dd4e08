#include "runtime/graph_copies.h"

#include <cstring>
#include <utility>

#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

template <typename HasRoom>
size_t GraphCopies::batch_for(const HasRoom& has_room) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].function == nullptr && has_room(nodes_[i].batch)) return i;
  }
  nodes_.emplace_back();
  return nodes_.size() - 1;
}

GraphCopies::Slot GraphCopies::add(void* dst, const void* src, size_t nbytes) {
  const size_t node = batch_for([](const BatchCopy& batch) { return batch.has_room(); });
  return {node, nodes_[node].batch.add(dst, src, nbytes)};
}

GraphCopies::Slot GraphCopies::add_bytes(void* dst, size_t nbytes) {
  const size_t node = batch_for([&](const BatchCopy& batch) { return batch.has_room(nbytes); });
  return {node, nodes_[node].batch.add_inline(dst, nbytes)};
}

void GraphCopies::kernel(CUfunction function, unsigned blocks, unsigned block_x, unsigned block_y,
                         const void* args, size_t nbytes) {
  Node node;
  node.function = function;
  node.blocks = blocks;
  node.block_x = block_x;
  node.block_y = block_y;
  const auto* bytes = static_cast<const std::byte*>(args);
  node.args.assign(bytes, bytes + nbytes);
  const void* src = nullptr;
  std::memcpy(&src, bytes + sizeof(void*), sizeof src);
  parts_.push_back({{nodes_.size(), 0}, src});
  nodes_.push_back(std::move(node));
}

void GraphCopies::run(void* dst, const void* src, size_t nbytes) {
  parts_.push_back({add(dst, src, nbytes), src});
}

std::vector<GraphCopies::Part> GraphCopies::take_parts() { return std::exchange(parts_, {}); }

void GraphCopies::capture(StreamCapture& stream) {
  if (!nodes_.empty()) batch_kernel_ = BatchCopy::kernel(device_);
  for (Node& node : nodes_) {
    if (node.function == nullptr) {
      node.batch.launch(device_, stream.stream());
    } else {
      void* parameters[] = {node.args.data()};
      CUDAEXEC_CU(cuLaunchKernel, node.function, node.blocks, 1, 1, node.block_x, node.block_y, 1,
                  0, cu_stream(stream.stream()), parameters, nullptr);
    }
    node.node = stream.last_node();
    node.changed = false;
  }
}

void GraphCopies::set_dst(Slot slot, void* dst) noexcept {
  Node& node = nodes_[slot.node];
  node.changed = node.batch.set_dst(slot.index, dst) || node.changed;
}

void GraphCopies::set_src(Slot slot, const void* src) noexcept {
  Node& node = nodes_[slot.node];
  if (node.function == nullptr) {
    node.changed = node.batch.set_src(slot.index, src) || node.changed;
    return;
  }
  std::byte* const place = node.args.data() + sizeof(void*);
  if (std::memcmp(place, &src, sizeof src) == 0) return;
  std::memcpy(place, &src, sizeof src);
  node.changed = true;
}

void GraphCopies::set_bytes(Slot slot, const void* bytes) noexcept {
  Node& node = nodes_[slot.node];
  node.changed = node.batch.set_inline(slot.index, bytes) || node.changed;
}

void GraphCopies::update(GraphExec& exec) {
  for (Node& node : nodes_) {
    if (!node.changed) continue;
    if (node.function == nullptr) {
      set_kernel_node(exec.get(), node.node, batch_kernel_, node.batch.blocks(), kCopyThreads, 1,
                      &node.batch.args());
    } else {
      set_kernel_node(exec.get(), node.node, node.function, node.blocks, node.block_x, node.block_y,
                      node.args.data());
    }
    node.changed = false;
  }
}

}  // namespace cudaexec
