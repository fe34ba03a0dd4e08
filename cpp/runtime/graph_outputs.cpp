#include "runtime/graph_outputs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "device/cuda/graph_capture.h"
#include "tensor/device_copy.h"

namespace cudaexec {
namespace {

constexpr size_t kMostStaged = size_t{64}
                               << 10;  // bytes of an output that a kernel writes to the host
constexpr ptrdiff_t kAligned = 64;     // bytes; places in fresh memory are as aligned as before

constexpr uintptr_t kGpuAlignment = 16;  // bytes that generated code counts on

size_t extent_nbytes(const Tensor& tensor) {
  return static_cast<size_t>(extent(tensor.sizes(), tensor.strides())) * tensor.itemsize();
}

Dims byte_strides(const Tensor& tensor) {
  Dims strides = tensor.strides();
  for (int64_t& stride : strides) stride *= static_cast<int64_t>(tensor.itemsize());
  return strides;
}

/// Whether elements of tensors of the same sizes lie at the same distances.
bool same_layout(const Tensor& a, const Tensor& b) {
  for (size_t dim = 0; dim < a.sizes().size(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

int64_t rounded(size_t nbytes) noexcept { return static_cast<int64_t>((nbytes + 63) / 64 * 64); }

}  // namespace

void GraphOutputs::plan(std::vector<OutputPlan::Captured> leaves, bool to_host,
                        const GraphTargets& targets, const GraphArena& arena) {
  const BoundOutputs* const bound = targets.bound;
  bound_ = bound;
  if (bound != nullptr) find_redirects(leaves, arena);
  int64_t staged = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor* const place = bound != nullptr ? bound->place(i) : nullptr;
    Leaf leaf;
    if (leaves[i].fixed) {
      leaf.way = std::holds_alternative<Tensor>(leaves[i].value) ? Way::kClone : Way::kFixed;
      leaf.value = std::move(leaves[i].value);
    } else {
      plan_leaf(leaf, leaves[i], place != nullptr ? place->device().is_cpu() : to_host, place);
    }
    if (leaf.way == Way::kStaged) {
      leaf.offset = staged;
      staged += rounded(leaf.nbytes);
    }
    const bool delivered = leaf.way == Way::kStaged || leaf.way == Way::kCopy;
    waits_ = waits_ || (delivered && leaf.nbytes != 0);
    leaves_.push_back(std::move(leaf));
  }
  if (staged != 0) {
    const RelaxedCaptureMode relaxed;
    staging_ = PinnedBlock(static_cast<size_t>(staged));
  }
  for (const Leaf& leaf : leaves_) {
    if (leaf.way == Way::kStaged && leaf.nbytes != 0) {
      copies_.add(staging_.data() + leaf.offset, leaf.src, leaf.nbytes);
    }
  }
  capture_groups(targets, arena);
}

void GraphOutputs::plan_leaf(Leaf& leaf, const OutputPlan::Captured& captured, bool to_host,
                             const Tensor* place) {
  const auto& tensor = std::get<Tensor>(captured.value);
  leaf.sizes = tensor.sizes();
  leaf.strides = tensor.strides();
  leaf.dtype = tensor.dtype();
  leaf.src = tensor.data();
  leaf.nbytes = static_cast<size_t>(extent(leaf.sizes, leaf.strides)) * dtype_size(leaf.dtype);
  if (to_host) {
    leaf.way = leaf.nbytes > kMostStaged ? Way::kCopy : Way::kStaged;
  } else if (place != nullptr) {
    plan_bound(leaf, tensor, *place);
  } else {
    plan_group(leaf, tensor, captured.shares);
  }
}

void GraphOutputs::plan_bound(Leaf& leaf, const Tensor& tensor, const Tensor& place) {
  leaf.way = Way::kBound;
  if (tensor.numel() == 0 || tensor.data() == place.data()) return;
  cuda_strided_copy(device_, place.data(), byte_strides(place), tensor.data(), byte_strides(tensor),
                    place.sizes(), place.itemsize(), copies_);
  (void)copies_.take_parts();  // these addresses never change
}

void GraphOutputs::find_redirects(const std::vector<OutputPlan::Captured>& leaves,
                                  const GraphArena& arena) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor* const place = bound_->place(i);
    if (leaves[i].fixed || !leaves[i].shares || place == nullptr || place->device().is_cpu()) {
      continue;
    }
    const auto& tensor = std::get<Tensor>(leaves[i].value);
    const Storage* const storage = tensor.storage().get();
    const auto number = arena.number_of(storage->data());
    const auto users = std::count_if(leaves.begin(), leaves.end(), [storage](const auto& other) {
      const auto* view = std::get_if<Tensor>(&other.value);
      return view != nullptr && view->storage().get() == storage;
    });
    const bool alone = users == 1 && tensor.offset() == 0 &&
                       storage->nbytes() == extent_nbytes(tensor) && same_layout(tensor, *place);
    const bool aligned = reinterpret_cast<uintptr_t>(place->data()) % kGpuAlignment == 0;
    if (number && alone && aligned) {
      redirects_.push_back({*number, storage->nbytes(), place->data()});
    }
  }
}

void GraphOutputs::plan_group(Leaf& leaf, const Tensor& tensor, bool shares) {
  leaf.way = Way::kGroup;
  const Storage* const storage = tensor.storage().get();
  const auto* const first = static_cast<const std::byte*>(tensor.data());
  auto group = groups_.end();
  if (shares) {
    group = std::find_if(groups_.begin(), groups_.end(),
                         [storage](const Group& each) { return each.storage == storage; });
  }
  leaf.group = static_cast<size_t>(group - groups_.begin());
  if (group == groups_.end()) {
    groups_.push_back({shares ? storage : nullptr, first, first + leaf.nbytes, {}});
    return;
  }
  group->first = std::min(group->first, first);
  group->last = std::max(group->last, first + leaf.nbytes);
}

void GraphOutputs::capture_groups(const GraphTargets& targets, const GraphArena& arena) {
  const bool in_place = targets.in_place && targets.bound == nullptr;
  if (in_place && targets.blocks.size() != groups_.size()) {
    throw CaptureError("outputs share memory in another way than in the capture before");
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    if (group.storage != nullptr && group.first != nullptr) {
      const auto* const base = static_cast<const std::byte*>(group.storage->data());
      group.first -= (group.first - base) % kAligned;
    }
    const auto nbytes = static_cast<size_t>(group.last - group.first);
    void* const target = in_place ? targets.blocks[i].data : nullptr;
    if (in_place && targets.blocks[i].nbytes != nbytes) {
      throw CaptureError("an output has another size than in the capture before");
    }
    if (nbytes != 0 && group.first != target) {
      if (target != nullptr) redirect_group(group, target, arena);
      // Without a target the address is that of the first launch.
      group.slot = copies_.add(target, group.first, nbytes);
    }
    group.storage = nullptr;  // goes with the capture
  }
  for (Leaf& leaf : leaves_) {
    if (leaf.way != Way::kGroup) continue;
    const auto* const data = static_cast<const std::byte*>(leaf.src);
    leaf.offset =
        (data - groups_[leaf.group].first) / static_cast<ptrdiff_t>(dtype_size(leaf.dtype));
  }
  fresh_.reserve(groups_.size());
  blocks_.reserve(groups_.size());
}

void GraphOutputs::redirect_group(const Group& group, void* target, const GraphArena& arena) {
  if (group.storage == nullptr || group.first != group.storage->data()) return;
  const auto nbytes = static_cast<size_t>(group.last - group.first);
  const auto number = arena.number_of(group.first);
  const bool aligned = reinterpret_cast<uintptr_t>(target) % kGpuAlignment == 0;
  if (number && aligned && group.storage->nbytes() == nbytes) {
    redirects_.push_back({*number, nbytes, target});
  }
}

bool GraphOutputs::lies_like(const GraphOutputs& other) const {
  return std::equal(leaves_.begin(), leaves_.end(), other.leaves_.begin(), other.leaves_.end(),
                    [](const Leaf& a, const Leaf& b) {
                      return a.way == b.way && a.sizes == b.sizes && a.strides == b.strides &&
                             a.dtype == b.dtype && a.group == b.group && a.offset == b.offset;
                    });
}

bool GraphOutputs::on_gpu() const noexcept {
  return std::none_of(leaves_.begin(), leaves_.end(), [](const Leaf& leaf) {
    return leaf.way == Way::kBound || leaf.way == Way::kStaged || leaf.way == Way::kCopy;
  });
}

void GraphOutputs::prepare(const CallMemory& memory, std::vector<Value>& values) {
  fresh_.clear();
  blocks_.clear();
  for (const Group& group : groups_) {
    const auto nbytes = static_cast<size_t>(group.last - group.first);
    fresh_.push_back(Storage::allocate(nbytes, device_.device(), memory.device, memory.stream));
    blocks_.push_back({fresh_.back()->data(), nbytes});
    if (nbytes != 0) copies_.set_dst(group.slot, fresh_.back()->data());
  }
  values.reserve(leaves_.size());
  for (const Leaf& leaf : leaves_) {
    switch (leaf.way) {
      case Way::kFixed:
        values.push_back(leaf.value);
        break;
      case Way::kClone:
        values.emplace_back(clone_strided(std::get<Tensor>(leaf.value), memory.host, {}));
        break;
      case Way::kGroup:
        values.emplace_back(
            Tensor(fresh_[leaf.group], leaf.offset, leaf.sizes, leaf.strides, leaf.dtype));
        break;
      case Way::kBound:
        values.emplace_back();
        break;
      case Way::kStaged:
      case Way::kCopy:
        values.emplace_back(
            Tensor::empty_strided(leaf.sizes, leaf.strides, leaf.dtype, Device{}, memory.host, {}));
        break;
    }
  }
  fresh_.clear();
}

void GraphOutputs::deliver(const CallMemory& memory, std::vector<Value>& values) {
  if (waits_) {
    memory.host_work->begin();
    const auto place = [&](size_t i) { return std::get<Tensor>(values[i]).data(); };
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const Leaf& leaf = leaves_[i];
      if (leaf.way != Way::kCopy) continue;
      device_.copy(place(i), Device{}, leaf.src, device_.device(), leaf.nbytes, memory.stream);
    }
    memory.host_work->wait();
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const Leaf& leaf = leaves_[i];
      if (leaf.way != Way::kStaged || leaf.nbytes == 0) continue;
      std::memcpy(place(i), staging_.data() + leaf.offset, leaf.nbytes);
    }
  }
  if (bound_ == nullptr) return;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Tensor* const target = bound_->place(i);
    const auto* value = std::get_if<Tensor>(&values[i]);
    if (target == nullptr || value == nullptr) continue;
    copy_elements(*target, *value, memory.device, memory.stream);
  }
}

}  // namespace cudaexec
