#include "runtime/kv_layout.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked_math.h"
#include "base/error.h"

namespace cudaexec {
namespace {

constexpr int kSmallestBlock = 5;  // log2: kernels read 16 tokens, CPU panels 32, of one page
constexpr int kLargestBlock = 20;  // log2
constexpr int64_t kManyPages = 2048;
constexpr int64_t kLargePage = int64_t{2} << 20;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t token_nbytes(const KvLayerSpec& layer, KvDtype dtype) {
  std::optional<int64_t> total = static_cast<int64_t>(2 * kv_dtype_size(dtype));
  for (const int64_t factor : {layer.batch, layer.heads, layer.head_dim}) {
    total = total ? checked_mul<int64_t>(*total, factor) : std::nullopt;
  }
  if (!total || *total > std::numeric_limits<int64_t>::max() >> (kLargestBlock + 12)) {
    throw NotSupported("a KV cache whose tokens take this many bytes");
  }
  return *total;
}

/// The smallest page that wastes at most an eighth, else the one that wastes least.
void choose_page(KvGroup& group, int64_t granularity) {
  const auto most =
      std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(group.capacity - 1))),
                 kSmallestBlock, kLargestBlock);
  double best = 0.0;
  for (int shift = kSmallestBlock; shift <= most; ++shift) {
    const int64_t used = group.token_nbytes << shift;
    const int64_t page = round_up(used, granularity);
    const double share = static_cast<double>(used) / static_cast<double>(page);
    if (share > best) {
      best = share;
      group.block_shift = shift;
      group.page_nbytes = page;
    }
    if (share >= 0.875) break;
  }
  group.slots = round_up(group.capacity, group.block());
}

/// Larger pages where there would be too many mappings of small ones.
int64_t page_granularity(const KvGroup& group, int64_t granularity) {
  const double total =
      static_cast<double>(group.token_nbytes) * static_cast<double>(group.capacity);
  while (granularity < kLargePage && total / static_cast<double>(granularity) > kManyPages) {
    granularity *= 2;
  }
  return granularity;
}

void place_layers(const KvCacheSpec& spec, KvLayout& layout) {
  const auto size = static_cast<int64_t>(kv_dtype_size(spec.dtype));
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const KvGroup& group = layout.groups[g];
    int64_t offset = 0;
    for (const size_t index : group.layers) {
      const KvLayerSpec& layer = spec.layers[index];
      const int64_t part = group.block() * layer.batch * layer.heads * layer.head_dim * size;
      KvLayerView& view = layout.layers[index];
      view = {layer.id,     layer.batch,   layer.heads,      layer.head_dim,
              layer.window, group.slots,   nullptr,          group.page_nbytes,
              offset,       offset + part, group.block_shift};
      offset += 2 * part;
      layout.group_of_layer[index] = g;
    }
  }
}

}  // namespace

KvLayout plan_kv(const KvCacheSpec& spec, int64_t granularity) {
  KvLayout layout;
  layout.layers.resize(spec.layers.size());
  layout.group_of_layer.resize(spec.layers.size());
  layout.capacity = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayerSpec& layer = spec.layers[i];
    const bool ring = layer.window != 0;
    const auto found = std::ranges::find_if(layout.groups, [&](const KvGroup& group) {
      return group.ring == ring && (!ring || group.capacity == layer.capacity);
    });
    KvGroup& group = found != layout.groups.end() ? *found : layout.groups.emplace_back();
    group.ring = ring;
    group.capacity = std::max(group.capacity, layer.capacity);
    group.token_nbytes += token_nbytes(layer, spec.dtype);
    group.layers.push_back(i);
    if (!ring) layout.capacity = std::min(layout.capacity, layer.capacity);
  }
  for (KvGroup& group : layout.groups) {
    choose_page(group, page_granularity(group, granularity));
  }
  place_layers(spec, layout);
  return layout;
}

}  // namespace cudaexec
