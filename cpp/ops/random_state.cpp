#include "ops/random_state.h"

#include <sys/random.h>

#include <chrono>
#include <utility>

namespace cudaexec {
namespace {

thread_local RandomState* current_state = nullptr;

uint64_t system_seed() noexcept {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed)) return seed;
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

RandomState::RandomState() : seed_(system_seed()) {}

void RandomState::set_seed(uint64_t seed) noexcept {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
  next_ = 0;
}

void RandomState::copy_from(RandomState& other) noexcept {
  const Range range = other.reserve(0);
  const std::lock_guard lock(mutex_);
  seed_ = range.seed;
  next_ = range.first;
}

RandomState::Range RandomState::reserve(uint64_t blocks) noexcept {
  const std::lock_guard lock(mutex_);
  const Range range{seed_, next_};
  next_ += blocks;
  return range;
}

void RandomState::give_back(const Range& range, uint64_t blocks) noexcept {
  const std::lock_guard lock(mutex_);
  if (seed_ == range.seed && next_ == range.first + blocks) next_ = range.first;
}

RandomState& RandomState::current() {
  static RandomState process_state;
  return current_state != nullptr ? *current_state : process_state;
}

RandomScope::RandomScope(RandomState& state) noexcept
    : previous_(std::exchange(current_state, &state)) {}

RandomScope::~RandomScope() { current_state = previous_; }

// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (2011), Philox 4x32
// with ten rounds; the constants are the paper's.
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) noexcept {
  constexpr uint64_t kMultiplyA = 0xD2511F53;
  constexpr uint64_t kMultiplyB = 0xCD9E8D57;
  constexpr uint32_t kStepA = 0x9E3779B9;
  constexpr uint32_t kStepB = 0xBB67AE85;
  auto key_a = static_cast<uint32_t>(seed);
  auto key_b = static_cast<uint32_t>(seed >> 32);
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0,
                            0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplyA * x[0];
    const uint64_t b = kMultiplyB * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key_a, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ key_b, static_cast<uint32_t>(a)};
    key_a += kStepA;
    key_b += kStepB;
  }
  return x;
}

}  // namespace cudaexec
