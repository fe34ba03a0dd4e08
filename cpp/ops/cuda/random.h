// Random numbers on GPUs: the sequences of ops/random_state.h, the same numbers as on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "base/export.h"
#include "device/cuda/cuda_device.h"
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

/// The kernels of one captured graph that draw random numbers. Used by one thread at a time:
///   { GraphRandomScope scope(random); ... capture ... }
///   before each launch: random.advance(state, exec).
/// So replays differ, and follow manual_seed as eager calls do.
class CUDAEXEC_API GraphRandom {
 public:
  GraphRandom() = default;
  GraphRandom(const GraphRandom&) = delete;
  GraphRandom& operator=(const GraphRandom&) = delete;

  /// Whether the captured work uses random numbers; if not, advance() does nothing.
  [[nodiscard]] bool is_used() const noexcept { return !draws_.empty(); }
  /// Takes from `state` what one launch uses and tells the kernels. The device is current.
  void advance(RandomState& state, cuda::CUgraphExec exec);
  /// The launch after the last advance() did not happen: whoever does the call in another way finds
  /// the same numbers.
  void give_back(RandomState& state) noexcept;

  /// Of the innermost scope of this thread, or null.
  static GraphRandom* current() noexcept;

  /// A captured kernel of `grid` blocks of threads that takes `blocks` blocks of the sequence.
  void add(cuda::CUgraphNode node, cuda::CUfunction function, unsigned grid,
           const cuda::RandomIntegersArgs& args, uint64_t blocks);

 private:
  struct Draw {
    cuda::CUgraphNode node;
    cuda::CUfunction function;
    unsigned grid;
    cuda::RandomIntegersArgs args;
    uint64_t first;  // after the start of the launch's numbers
  };
  std::vector<Draw> draws_;
  uint64_t blocks_ = 0;
  RandomState::Range taken_{};  // by the last advance()
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
