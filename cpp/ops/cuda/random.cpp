#include "ops/cuda/random.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/graph_capture.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sort.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "random";
constexpr const char* kIntegers = "cudaexec_random_integers";

thread_local GraphRandom* current_random = nullptr;

}  // namespace

void fill_integers(const Tensor& out, int64_t low, int64_t high, RandomState& state,
                   const OpContext& context) {
  CudaDevice& device = common_device("randint", {{"out", &out}});
  ops::require_dtype("randint", "out", out, {Dtype::kInt64});
  if (low >= high) {
    throw InputError(str("randint: range ", low, " to ", high, "; expected low < high"));
  }
  const int64_t count = out.numel();
  if (count == 0) return;
  const auto blocks = static_cast<uint64_t>((count + 1) / 2);
  cuda::RandomIntegersArgs args{};
  args.count = count;
  args.low = low;
  args.range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  GraphRandom* random = nullptr;  // in a capture
  if (device.is_capturing(context.stream)) {
    random = GraphRandom::current();
    if (random == nullptr) {
      throw CaptureError(
          "randint: random numbers are drawn while a CUDA graph is being captured, and nothing "
          "makes its replays differ; run the method without a graph");
    }
  } else {
    const RandomState::Range range = state.reserve(blocks);
    args.position = {range.seed, range.first};
  }
  const bool direct = out.is_contiguous();
  const Tensor target = direct ? out : empty(device, out.sizes(), out.dtype(), context);
  args.out = target.data_as<int64_t>();
  const int64_t grid = blocks_for(static_cast<int64_t>(blocks));
  launch(device, kImage, kIntegers, args, grid, context.stream);
  if (random != nullptr) {
    random->add(last_captured_node(device, context.stream),
                device.kernels().get(device, kImage, kIntegers), static_cast<unsigned>(grid), args,
                blocks);
  }
  if (!direct) copy(device, out, target, context.stream);
}

Tensor randperm(CudaDevice& device, int64_t n, Dtype dtype, RandomState& state,
                const OpContext& context) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max()) {
    throw InputError(str("randperm: n is ", n, "; expected 0 to 2147483647"));
  }
  constexpr auto kLow = std::numeric_limits<int64_t>::min();
  constexpr auto kHigh = std::numeric_limits<int64_t>::max();
  SortEntries entries{empty(device, Dims{n}, Dtype::kInt64, context),
                      empty(device, Dims{n}, Dtype::kInt32, context)};
  fill_integers(entries.keys, kLow, kHigh, state, context);
  number_entries(device, entries.places, context.stream);
  sort_entries(device, entries, 1, n, context);
  return convert(device, entries.places, dtype, context);
}

void GraphRandom::add(cuda::CUgraphNode node, cuda::CUfunction function, unsigned grid,
                      const cuda::RandomIntegersArgs& args, uint64_t blocks) {
  draws_.push_back({node, function, grid, args, blocks_});
  blocks_ += blocks;
}

void GraphRandom::advance(RandomState& state, cuda::CUgraphExec exec) {
  if (draws_.empty()) return;
  taken_ = state.reserve(blocks_);
  for (Draw& draw : draws_) {
    draw.args.position = {taken_.seed, taken_.first + draw.first};
    set_kernel_node(exec, draw.node, draw.function, draw.grid, kThreads, 1, &draw.args);
  }
}

void GraphRandom::give_back(RandomState& state) noexcept {
  if (!draws_.empty()) state.give_back(taken_, blocks_);
}

GraphRandom* GraphRandom::current() noexcept { return current_random; }

GraphRandomScope::GraphRandomScope(GraphRandom& random) noexcept
    : previous_(std::exchange(current_random, &random)) {}

GraphRandomScope::~GraphRandomScope() { current_random = previous_; }

}  // namespace cudaexec::gpu
