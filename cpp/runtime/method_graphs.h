// CUDA graphs of one method: its options, why it may not have any, and what became of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_mutex.h"
#include "format/manifest.h"
#include "runtime/graph_key.h"
#include "runtime/graph_state.h"
#include "runtime/options.h"

namespace cudaexec {

/// Of one key in one container. Counters may be read at any time.
struct GraphStats {
  std::string inputs;
  std::atomic<GraphPhase> phase{GraphPhase::kEager};
  std::atomic<uint64_t> calls{0}, captures{0}, replays{0};
  std::atomic<uint64_t> in_place{0};  // replays on the memory of the call itself
  std::atomic<size_t> nbytes{0};      // pinned
  ForkMutex mutex;
  std::string reason;  // under the mutex
};

/// Thread-safe.
class MethodGraphs {
 public:
  struct Row {
    std::string inputs, phase, reason;
    uint64_t calls = 0, captures = 0, replays = 0, in_place = 0;
    size_t nbytes = 0;
  };
  struct Totals {
    std::atomic<uint64_t> captures{0}, replays{0}, failures{0}, evictions{0};
  };

  /// `spec` outlives it. `refusal`: why no call may be captured; empty if they may.
  MethodGraphs(const GraphOptions& options, const MethodSpec& spec, std::string refusal)
      : options_(options), spec_(spec), refusal_(std::move(refusal)) {}

  [[nodiscard]] const GraphOptions& options() const noexcept { return options_; }
  [[nodiscard]] const MethodSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] Totals& totals() noexcept { return totals_; }

  /// The counters of a new key.
  [[nodiscard]] std::shared_ptr<GraphStats> add(std::string inputs);
  [[nodiscard]] std::vector<Row> rows() const;
  /// Strict graphs: remembers the first key of all containers. @throws InputError naming the
  /// difference if `inputs` have another one.
  void check_strict(const GraphKey& key, std::span<const Value> inputs);

 private:
  const GraphOptions options_;
  const MethodSpec& spec_;
  const std::string refusal_;
  Totals totals_;
  mutable ForkMutex mutex_;
  mutable std::vector<std::weak_ptr<GraphStats>> stats_;
  std::optional<GraphKey> only_;
};

}  // namespace cudaexec
