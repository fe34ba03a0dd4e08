// Random numbers on GPUs: the sequences of ops/random_state.h, the same numbers as on the CPU.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "memory/allocator.h"
#include "ops/cuda/random_args.h"
#include "ops/op_context.h"
#include "ops/random_state.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

/// Whole numbers of [low, high); out int64. While the stream is being captured the numbers come
/// from the current GraphRandom. @throws InputError unless low < high, DtypeError, CaptureError in
/// a capture without a GraphRandom (its replays would repeat the same numbers).
CUDAEXEC_API void fill_integers(const Tensor& out, int64_t low, int64_t high, RandomState& state,
                                const OpContext& context);

/// A random order of 0 .. n - 1, of `dtype` (not the CPU's order). @throws as above.
CUDAEXEC_API Tensor randperm(CudaDevice& device, int64_t n, Dtype dtype, RandomState& state,
                             const OpContext& context);

/// Where the random numbers of one captured graph start, kept in device memory that its kernels
/// read. Used by one thread at a time:
///   GraphRandom random(device, allocator, stream);
///   { GraphRandomScope scope(random); ... capture ... }
///   before each launch: random.advance(state, stream); launch the graph on `stream`.
/// So replays differ, and follow manual_seed as eager calls do.
class CUDAEXEC_API GraphRandom {
 public:
  /// `allocator` and `stream` outlive it; the memory is freed on `stream`.
  GraphRandom(CudaDevice& device, Allocator& allocator, StreamRef stream);
  ~GraphRandom();
  GraphRandom(const GraphRandom&) = delete;
  GraphRandom& operator=(const GraphRandom&) = delete;

  /// Whether the captured work uses random numbers; if not, advance() does nothing.
  [[nodiscard]] bool is_used() const noexcept { return blocks_ != 0; }
  /// Takes from `state` what one replay uses and puts the start on `stream`; never waits.
  void advance(RandomState& state, StreamRef stream);

  /// Of the innermost scope of this thread, or null.
  static GraphRandom* current() noexcept;

  /// For kernels: the device's position, and the first of `blocks` blocks after it.
  [[nodiscard]] const cuda::RandomPosition* position() const noexcept { return position_; }
  uint64_t take(uint64_t blocks);

 private:
  CudaDevice& device_;
  Allocator& allocator_;
  StreamRef stream_;
  cuda::RandomPosition* position_;
  cuda::CUfunction set_position_ = nullptr;  // from the first take() on
  uint64_t blocks_ = 0;
};

/// Makes a GraphRandom current for this thread while it lives.
class CUDAEXEC_API GraphRandomScope {
 public:
  explicit GraphRandomScope(GraphRandom& random) noexcept;
  ~GraphRandomScope();
  GraphRandomScope(const GraphRandomScope&) = delete;
  GraphRandomScope& operator=(const GraphRandomScope&) = delete;

 private:
  GraphRandom* previous_;
};

}  // namespace cudaexec::gpu
