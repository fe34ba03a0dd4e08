#include "ops/cuda/random.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sort.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kImage = "random";

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
  if (device.is_capturing(context.stream)) {
    GraphRandom* random = GraphRandom::current();
    if (random == nullptr) {
      throw CaptureError(
          "randint: random numbers are drawn while a CUDA graph is being captured, and nothing "
          "makes its replays differ; run the method without a graph");
    }
    args.device_position = random->position();
    args.position.first = random->take(blocks);
  } else {
    const RandomState::Range range = state.reserve(blocks);
    args.position = {range.seed, range.first};
  }
  const bool direct = out.is_contiguous();
  const Tensor target = direct ? out : empty(device, out.sizes(), out.dtype(), context);
  args.out = target.data_as<int64_t>();
  launch(device, kImage, "cudaexec_random_integers", args, blocks_for(static_cast<int64_t>(blocks)),
         context.stream);
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

GraphRandom::GraphRandom(CudaDevice& device, Allocator& allocator, StreamRef stream)
    : device_(device),
      allocator_(allocator),
      stream_(stream),
      position_(static_cast<cuda::RandomPosition*>(
          allocator.allocate(sizeof(cuda::RandomPosition), stream))) {}

GraphRandom::~GraphRandom() {
  allocator_.deallocate(position_, sizeof(cuda::RandomPosition), stream_);
}

void GraphRandom::advance(RandomState& state, StreamRef stream) {
  if (blocks_ == 0) return;
  const RandomState::Range range = state.reserve(blocks_);
  const cuda::SetPositionArgs args{position_, {range.seed, range.first}};
  launch(device_, set_position_, args, stream);
}

GraphRandom* GraphRandom::current() noexcept { return current_random; }

uint64_t GraphRandom::take(uint64_t blocks) {
  if (set_position_ == nullptr) {
    const CudaGuard guard(device_);
    set_position_ = device_.kernels().get(device_, kImage, "cudaexec_set_position");
  }
  return std::exchange(blocks_, blocks_ + blocks);
}

GraphRandomScope::GraphRandomScope(GraphRandom& random) noexcept
    : previous_(std::exchange(current_random, &random)) {}

GraphRandomScope::~GraphRandomScope() { current_random = previous_; }

}  // namespace cudaexec::gpu
