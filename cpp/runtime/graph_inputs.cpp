#include "runtime/graph_inputs.h"

#include <algorithm>
#include <utility>

namespace cudaexec {
namespace {

size_t extent_nbytes(const Tensor& tensor) {
  return static_cast<size_t>(extent(tensor.sizes(), tensor.strides())) * tensor.itemsize();
}

Dims byte_strides(const Tensor& tensor) {
  Dims strides = tensor.strides();
  for (int64_t& stride : strides) stride *= static_cast<int64_t>(tensor.itemsize());
  return strides;
}

}  // namespace

GraphInputs::GraphInputs(CudaDevice& device, const InputCheck& check, std::span<const Value> inputs,
                         const Dims& symbols, bool in_place, Allocator& arena, StreamRef stream)
    : check_(check), copies_(device) {
  (void)BatchCopy::kernel(device);
  for (InputCheck::Place& place : check.places(inputs, symbols, in_place, arena, stream)) {
    Feed feed;
    feed.place = std::move(place);
    plan(device, feed, std::get<Tensor>(inputs[feed.place.input]));
    feeds_.push_back(std::move(feed));
  }
}

void GraphInputs::plan(CudaDevice& device, Feed& feed, const Tensor& tensor) {
  const Tensor& target = feed.place.target;
  if (tensor.numel() == 0 || feed.place.in_place) return;
  const size_t nbytes = extent_nbytes(target);
  if (tensor.device().is_cpu()) {
    const bool carried = feed.place.whole && nbytes <= cuda::kBatchInline;
    feed.way = carried ? Way::kBytes : Way::kCopy;
    if (carried) feed.parts.push_back({copies_.add_bytes(target.data(), nbytes), 0});
    return;
  }
  if (feed.place.whole) {
    feed.way = Way::kRun;
    feed.parts.push_back({copies_.add(target.data(), tensor.data(), nbytes), 0});
    return;
  }
  feed.way = Way::kStrided;
  cuda_strided_copy(device, target.data(), byte_strides(target), tensor.data(),
                    byte_strides(tensor), target.sizes(), target.itemsize(), copies_);
  const auto* const first = static_cast<const std::byte*>(tensor.data());
  for (const GraphCopies::Part& part : copies_.take_parts()) {
    feed.parts.push_back({part.slot, static_cast<const std::byte*>(part.src) - first});
  }
}

std::vector<Tensor> GraphInputs::graph_inputs() const {
  std::vector<Tensor> result(feeds_.size());
  for (const Feed& feed : feeds_) result[feed.place.graph_input] = feed.place.target;
  return result;
}

std::vector<const Storage*> GraphInputs::storages() const {
  std::vector<const Storage*> result;
  result.reserve(feeds_.size());
  for (const Feed& feed : feeds_) result.push_back(feed.place.target.storage().get());
  return result;
}

void GraphInputs::release() noexcept {
  for (Feed& feed : feeds_) {
    if (feed.place.in_place) feed.place.target = Tensor();
  }
}

bool GraphInputs::on_gpu() const noexcept {
  return std::none_of(feeds_.begin(), feeds_.end(), [](const Feed& feed) {
    return feed.way == Way::kBytes || feed.way == Way::kCopy;
  });
}

void GraphInputs::add_places(std::span<const Value> inputs,
                             std::vector<const void*>& places) const {
  for (const Feed& feed : feeds_) {
    places.push_back(std::get<Tensor>(inputs[feed.place.input]).data());
  }
}

void GraphInputs::feed(std::span<const Value> inputs, const CallMemory& memory) {
  for (const Feed& feed : feeds_) {
    const auto& tensor = std::get<Tensor>(inputs[feed.place.input]);
    switch (feed.way) {
      case Way::kNothing:
        break;
      case Way::kRun:
      case Way::kStrided:
        for (const Part& part : feed.parts) {
          copies_.set_src(part.slot, static_cast<const std::byte*>(tensor.data()) + part.offset);
        }
        break;
      case Way::kBytes:
        copies_.set_bytes(feed.parts.front().slot, tensor.data());
        break;
      case Way::kCopy:
        check_.copy_to(feed.place, tensor, memory);
        break;
    }
  }
}

}  // namespace cudaexec
