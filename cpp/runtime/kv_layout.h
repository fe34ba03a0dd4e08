// How the layers of a KV cache share pages. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/export.h"
#include "format/manifest.h"
#include "ops/kv_step.h"

namespace cudaexec {

/// Layers whose tokens lie together: a page holds `1 << block_shift` tokens of all of them, as
/// [layer][keys, values][batch][token][head][head_dim].
struct KvGroup {
  bool ring = false;
  int64_t capacity = 0;  // tokens
  int64_t slots = 0;     // the same, rounded up to whole pages
  int64_t token_nbytes = 0;
  int64_t page_nbytes = 0;
  int block_shift = 0;
  std::vector<size_t> layers;  // of the spec

  [[nodiscard]] int64_t block() const noexcept { return int64_t{1} << block_shift; }
  [[nodiscard]] int64_t pages() const noexcept { return slots >> block_shift; }
};

struct KvLayout {
  std::vector<KvGroup> groups;
  /// One per layer of the spec, in its order; without `base`.
  std::vector<KvLayerView> layers;
  std::vector<size_t> group_of_layer;
  int64_t capacity = 0;  // tokens of the shortest flat layer; the largest int64 if all are rings
};

/// Flat layers are one group, rings one for each capacity. Pages are multiples of `granularity`
/// bytes. @throws NotSupported for sizes that overflow.
CUDAEXEC_API KvLayout plan_kv(const KvCacheSpec& spec, int64_t granularity);

}  // namespace cudaexec
