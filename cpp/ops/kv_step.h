// The step of a KV cache that a call performs, as plain addresses: what the attention over the
// cache reads and writes. The runtime makes it current for the run of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/export.h"
#include "device/device.h"
#include "ops/kv_words.h"
#include "tensor/kv_dtype.h"

namespace cudaexec {

/// Where the tokens of one layer are. Token t is in slot t (ring: t % slots), and slot s of batch
/// item b and head h has its keys at
///   base + s / block * page_nbytes + key_offset + ((b * block + s % block) * heads + h) * head_dim
/// (the last term in elements), block being 1 << block_shift, and its values at value_offset.
struct KvLayerView {
  int64_t id = 0;
  int64_t batch = 0, heads = 0, head_dim = 0;
  int64_t window = 0;  // tokens that a query sees, itself included; 0: all
  int64_t slots = 0;   // a multiple of the block
  std::byte* base = nullptr;
  int64_t page_nbytes = 0;
  int64_t key_offset = 0, value_offset = 0;  // bytes, in a page
  int block_shift = 0;

  [[nodiscard]] int64_t block() const noexcept { return int64_t{1} << block_shift; }
  [[nodiscard]] bool is_ring() const noexcept { return window != 0; }
};

struct KvStep {
  const std::vector<KvLayerView>* layers = nullptr;
  KvDtype dtype = KvDtype::kBfloat16;
  Device device;
  int64_t position = 0;  // committed tokens before this step
  int64_t width = 0;     // tokens that it adds
  KvDeviceWord* word = nullptr;
  KvFault* fault = nullptr;

  /// The step of the innermost KvScope of this thread, or null.
  static const KvStep* current() noexcept;
};

/// Makes a step current for this thread while it lives.
class CUDAEXEC_API KvScope {
 public:
  explicit KvScope(const KvStep* step) noexcept;
  ~KvScope();
  KvScope(const KvScope&) = delete;
  KvScope& operator=(const KvScope&) = delete;

 private:
  const KvStep* previous_;
};

}  // namespace cudaexec
