// Where random operators get their numbers: a counter-based generator (Philox 4x32-10), so that any
// number of threads can compute any part of a sequence. A Module owns a state and makes it current
// for its runs; outside of one the state of the process is used, seeded by the operating system.
#pragma once

#include <array>
#include <cstdint>

#include "base/export.h"
#include "base/fork_mutex.h"

namespace cudaexec {

class CUDAEXEC_API RandomState {
 public:
  /// Seeded by the operating system.
  RandomState();
  explicit RandomState(uint64_t seed) noexcept : seed_(seed) {}
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

  /// Starts the sequence of `seed` from its beginning. Thread-safe.
  void set_seed(uint64_t seed) noexcept;

  /// Takes over the seed and the place in its sequence. Thread-safe.
  void copy_from(RandomState& other) noexcept;

  struct Range {
    uint64_t seed;
    uint64_t first;  // block
  };
  /// The next `blocks` blocks of four 32-bit numbers, for the caller alone. Thread-safe.
  [[nodiscard]] Range reserve(uint64_t blocks) noexcept;

  /// Takes back what reserve(blocks) gave and nobody used, unless others have reserved since, or
  /// another sequence was begun. Thread-safe.
  void give_back(const Range& range, uint64_t blocks) noexcept;

  /// The state of the innermost RandomScope of this thread, or that of the process.
  static RandomState& current();

 private:
  ForkMutex mutex_;
  uint64_t seed_;
  uint64_t next_ = 0;
};

/// Makes a state current for this thread while it lives.
class CUDAEXEC_API RandomScope {
 public:
  explicit RandomScope(RandomState& state) noexcept;
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomState* previous_;
};

/// Block `counter` of the sequence of `seed`.
[[nodiscard]] CUDAEXEC_API std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) noexcept;

}  // namespace cudaexec
